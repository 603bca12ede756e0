"""Tests of the collector of Flink on answers of a real job manager of version 1.20.5 (``recorded/``)."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from jobmeter.collect.scheduler.flink import meaning
from jobmeter.collect.scheduler.flink.kind import KIND
from jobmeter.collect.scheduler.flink.rest import FlinkRest
from jobmeter.collect.scheduler.flink.source import FlinkCluster
from jobmeter.errors import ConfigurationError, LimitExceededError, UnavailableError
from jobmeter.model.catalog import find
from jobmeter.model.job import JobState
from jobmeter.model.record import list_replicas

RECORDED = json.loads((Path(__file__).parents[2] / "recorded" / "flink-1.20.5.json").read_text())["answers"]
TM = "127.0.0.1:33119-3fd236"
NOW = 1_795_375_560_000
IDS = {job["name"]: job["jid"] for job in RECORDED["/jobs/overview"]["jobs"]}


class Recording(FlinkRest):
    """Job manager with recorded answers, some of them replaced; it counts its requests."""

    def __init__(self, most_requests: int = 500) -> None:
        super().__init__("http://127.0.0.1:1", most_requests)
        self.answers: dict[str, Any] = json.loads(json.dumps(RECORDED))
        self.asked: list[str] = []
        self.away = False

    def get(self, path: str, kind: Any) -> Any:
        if self.away:
            raise UnavailableError("Flink does not answer")
        if len(self.asked) >= self._most:
            raise LimitExceededError("too many", "rest")
        self.asked.append(path)
        where, query, names = path.partition("?get=")
        if query:
            values = self.answers.get(where, {})
            expected = unquote(names).split(",")
            return [
                msgspec.convert({"id": one, "value": values[one]}, kind.__args__[0])
                for one in expected
                if one in values
            ]
        if where.endswith("/metrics"):
            return [msgspec.convert({"id": one}, kind.__args__[0]) for one in self.answers.get(f"{where}#names", [])]
        found = self.answers.get(where)
        return None if found is None else msgspec.convert(found, kind)

    def begin(self) -> None:
        self.asked.clear()

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.answers["/jobs/overview"]["jobs"] if one["name"] == name)
        return found

    def change(self, name: str, state: str, at_ms: int, end_ms: int = -1) -> None:
        """Set the job to another state since a time."""
        change = {"state": state, "end-time": end_ms, "last-modification": at_ms}
        self.job(name).update(change)
        self.answers[f"/jobs/{IDS[name]}"].update(change)


def polled(cluster: FlinkCluster, now_ms: int = NOW) -> dict[str, Any]:
    """Poll. Return the new records by job name."""
    names = {job: name for name, job in IDS.items()}
    return {names[record.job_id]: record for record in cluster.poll(now_ms).jobs}


def test_jobs_are_as_flink_says() -> None:
    found = polled(FlinkCluster("t", Recording()))
    states = {name: record.state for name, record in found.items()}
    assert states == {
        "windows": JobState.RUNNING,
        "steady": JobState.RUNNING,
        "recovers": JobState.RUNNING,
        "ends": JobState.SUCCEEDED,
        "fails": JobState.FAILED,
        "restarts": JobState.FAILED,
    }
    for name, record in found.items():
        says = RECORDED[f"/jobs/{IDS[name]}"]
        assert (record.start, record.end) == (says["start-time"], says["end-time"] if says["end-time"] > 0 else None)
        assert record.type == "FlinkStream"
    assert found["fails"].error == "java.lang.ArithmeticException: / by zero"
    assert found["windows"].labels["flink.parallelism"] == "2"


def test_restarts_are_attempts_that_end_where_the_next_begins() -> None:
    found = FlinkCluster("t", Recording()).poll(NOW)
    record = next(one for one in found.jobs if one.job_id == IDS["restarts"])
    history = sorted(
        one["timestamp"] for one in RECORDED[f"/jobs/{IDS['restarts']}/exceptions"]["exceptionHistory"]["entries"]
    )
    assert [(one.name, one.attempt, one.end) for one in list_replicas(record)] == [
        (TM, at, moment) for at, moment in enumerate(history)
    ]
    assert {one.state for one in list_replicas(record)} == {JobState.FAILED}
    events = [(one.attempt, one.reason, one.time) for one in found.events if one.job == IDS["restarts"]]
    assert events == [(0, "Restarted", history[0]), (1, "Restarted", history[1]), (2, "JobFailed", history[2])]


def test_nothing_new_is_reported_twice_and_little_is_requested() -> None:
    rest = Recording()
    cluster = FlinkCluster("t", rest)
    cluster.poll(NOW)
    cluster.poll(NOW + 10_000)
    again = cluster.poll(NOW + 20_000)
    assert (again.jobs, again.events) == ([], [])
    assert len(rest.asked) == 2


def test_every_metric_is_one_of_the_catalogue_and_of_its_subtask() -> None:
    cluster = FlinkCluster("t", Recording())
    cluster.poll(NOW)
    cluster.measure(NOW)
    samples = [one for one in cluster.measure(NOW + 10_000) if one.series.job == IDS["windows"]]
    assert all(find(one.series.metric) is not None for one in samples)
    values: dict[str, list[float]] = {}
    for one in samples:
        values.setdefault(one.series.metric, []).append(one.value)
    read: dict[str, list[float]] = {}
    for vertex in RECORDED[f"/jobs/{IDS['windows']}"]["vertices"]:
        for name, text in RECORDED[f"/jobs/{IDS['windows']}/vertices/{vertex['id']}/metrics"].items():
            if text != "NaN":
                read.setdefault(name.partition(".")[2], []).append(float(text))
    window = "GroupWindowAggregate[5]"
    assert sorted(values["flink.watermarkLatency"]) == sorted(read[f"{window}.watermarkLatency"])
    assert sorted(values["flink.tps.rate"]) == sorted(read["Source__events[1].numRecordsOutPerSecond"])
    state = read[f"{window}.state_name.window-aggs.valueStateGetLatency_mean"]
    assert sorted(values["flink.rocksdb_get.mean"]) == sorted(state)
    busy = [value * 1e6 for value in read["busyTimeMsPerSecond"]]
    assert sorted(values["flink.taskLatency.sum"]) == sorted(busy)
    assert values["flink.task_failover.rate"] == [0.0]
    job = RECORDED[f"/jobs/{IDS['windows']}/metrics"]
    assert values["flink.checkpoints"] == [float(job["totalNumberOfCheckpoints"])]
    heap = RECORDED[f"/taskmanagers/{TM}/metrics"]["Status.JVM.Memory.Heap.Used"]
    assert values["flink.Status.JVM.Memory.Heap.Used"] == [float(heap)]
    # Three jobs share the task manager, so none of them gets its CPU time. No source here counts its bytes.
    assert not {"cpu.time", "flink.inBps.rate", "flink.delay"} & values.keys()
    (subtask,) = {one.series.replica for one in samples if one.series.metric == "flink.tps.rate"}
    assert subtask == TM


def test_a_task_manager_that_works_for_one_job_gives_it_its_cpu_time() -> None:
    rest = Recording()
    for name in ("steady", "recovers"):
        rest.change(name, "CANCELED", NOW, NOW)
    cluster = FlinkCluster("t", rest)
    cluster.poll(NOW)
    used = [one.value for one in cluster.measure(NOW) if one.series.metric == "cpu.time"]
    assert used == [float(RECORDED[f"/taskmanagers/{TM}/metrics"]["Status.JVM.CPU.Time"]) / 1e9]


def test_an_end_is_reported_with_its_state() -> None:
    rest = Recording()
    cluster = FlinkCluster("t", rest)
    cluster.poll(NOW)
    rest.change("steady", "CANCELED", NOW + 5_000, NOW + 5_000)
    record = polled(cluster, NOW + 10_000)["steady"]
    assert (record.state, record.end) == (JobState.STOPPED, NOW + 5_000)
    assert [(one.state, one.end) for one in list_replicas(record)] == [(JobState.STOPPED, NOW + 5_000)]
    assert polled(cluster, NOW + 30_000) == {}


def test_a_restart_makes_the_next_attempt() -> None:
    rest = Recording()
    cluster = FlinkCluster("t", rest)
    cluster.poll(NOW)
    failed, again = NOW + 1_000, NOW + 2_000
    rest.change("steady", "RUNNING", again)
    failure = {"exceptionName": "x.Lost", "timestamp": failed, "stacktrace": "x.Lost: gone", "taskManagerId": TM}
    rest.answers[f"/jobs/{IDS['steady']}/exceptions"]["exceptionHistory"]["entries"] = [failure]
    for vertex in rest.answers[f"/jobs/{IDS['steady']}"]["vertices"]:
        for one in rest.answers[f"/jobs/{IDS['steady']}/vertices/{vertex['id']}"]["subtasks"]:
            one |= {"start-time": again, "taskmanager-id": "other:1-a", "endpoint": "other:1"}
    found = cluster.poll(NOW + 10_000)
    (record,) = found.jobs
    assert [(one.name, one.attempt, one.state, one.end) for one in list_replicas(record)] == [
        (TM, 0, JobState.FAILED, failed),
        ("other:1-a", 1, JobState.RUNNING, None),
    ]
    assert [(one.reason, one.attempt) for one in found.events] == [("Restarted", 0)]
    placed = {one.series for one in cluster.measure(NOW + 10_000) if one.series.metric == "flink.tps.rate"}
    assert ("other:1-a", 1, "other") in {(one.replica, one.attempt, one.node) for one in placed}


def test_a_job_that_the_job_manager_forgot_is_unknown_after_a_restart_of_both(tmp_path: Path) -> None:
    rest = Recording()
    FlinkCluster("t", rest, tmp_path).poll(NOW)
    rest.answers["/jobs/overview"]["jobs"] = []
    found = polled(FlinkCluster("t", rest, tmp_path), NOW + 60_000)
    assert set(found) == {"windows", "steady", "recovers"}
    assert {(one.state, one.end) for one in found.values()} == {(JobState.UNKNOWN, NOW)}


def test_a_silent_job_manager_says_nothing_of_its_jobs() -> None:
    rest = Recording()
    cluster = FlinkCluster("t", rest)
    cluster.poll(NOW)
    rest.away = True
    with pytest.raises(UnavailableError):
        cluster.poll(NOW + 10_000)
    rest.away = False
    assert polled(cluster, NOW + 70_000) == {}


def test_too_few_requests_make_jobs_take_turns() -> None:
    rest = Recording(most_requests=12)
    cluster = FlinkCluster("t", rest)
    measured = set()
    metrics_seen = set()
    for at in range(40):
        metrics_seen |= set(polled(cluster, NOW + at * 10_000))
        assert len(rest.asked) <= 12
        measured |= {one.series.job for one in cluster.measure(NOW + at * 10_000)}
        assert len(rest.asked) <= 12
    assert metrics_seen == set(IDS)
    assert measured == {IDS["windows"], IDS["steady"], IDS["recovers"]}


def _of(read: Mapping[str, float]) -> dict[str, float]:
    return {one.name: one.value for one in meaning.measure_subtask(read)}


def test_a_source_that_counts_and_reports_its_lag() -> None:
    source = "Source__orders."
    read = {
        f"{source}numRecordsIn": 200.0,
        f"{source}numRecordsInPerSecond": 20.0,
        f"{source}numRecordsOutPerSecond": 19.0,
        f"{source}numRecordsInErrors": 10.0,
        f"{source}numBytesIn": 5000.0,
        f"{source}numBytesInPerSecond": 500.0,
        f"{source}currentEmitEventTimeLag": 1200.0,
        f"{source}currentFetchEventTimeLag": -1.0,
        f"{source}sourceIdleTime": 3.0,
    }
    assert meaning.select(read) == sorted(read)
    assert _of(read) == {
        "delay": 1200.0,
        "no_data_delay": 3.0,
        "tps.rate": 20.0,
        "parserTps.rate": 19.0,
        "inBps.rate": 500.0,
        "parserSkipCount": 0.05,
    }


def test_what_is_no_number_or_unset_is_absent() -> None:
    assert _of({"busyTimeMsPerSecond": float("nan"), "numRecordsInPerSecond": 0.0, "idleTimeMsPerSecond": 5.0}) == {
        "numRecordsInPerSecond.rate": 0.0
    }
    assert list(meaning.measure_job({"lastCheckpointDuration": -1.0, "totalNumberOfCheckpoints": 0.0})) == [
        ("checkpoints", 0.0, ())
    ]


def test_a_sink_that_counts_has_what_it_sent_and_markers_are_joined() -> None:
    sink = "Sink__out."
    read = {f"{sink}numRecordsSend": 9.0, f"{sink}numRecordsOutPerSecond": 3.0, f"{sink}numRecordsInPerSecond": 7.0}
    read |= {f"latency.source_id.a.operator_id.{one}.operator_subtask_index.0.latency_mean": one for one in (1.0, 2.0)}
    assert _of(read) == {"sink.outTps.rate": 3.0, "partitionLatency.mean": fmean((1.0, 2.0)) * 1e6}


@contextmanager
def serving(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield a server with one answer for every path: its address and the requested paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


def test_lists_of_metrics_fit_into_the_request_line_of_flink() -> None:
    names = [f"{at}.Calc[{at}].numRecordsIn" for at in range(400)]
    with serving(200, b'[{"id":"a","value":"1.5"},{"id":"b","value":"NaN,"},{"id":"c"}]') as (url, asked):
        assert FlinkRest(f"{url}/flink/").read_values("/jobs/x/metrics", names) == {"a": 1.5}
    assert all(len(path) < 4000 and path.startswith("/flink/jobs/x/metrics?get=") for path in asked)
    assert [name for path in asked for name in unquote(path.partition("?get=")[2]).split(",")] == names


@pytest.mark.parametrize(("status", "body"), [(500, b"oops"), (200, b"<html>"), (302, b"")])
def test_an_answer_that_is_none_is_an_outage(status: int, body: bytes) -> None:
    with serving(status, body) as (url, _), pytest.raises(UnavailableError, match="Flink at"):
        FlinkCluster("t", FlinkRest(url)).poll(NOW)


def test_what_flink_does_not_know_is_none_and_requests_are_bounded() -> None:
    with serving(404, b"{}") as (url, _):
        rest = FlinkRest(url, most_requests=1)
        assert rest.list_names("/jobs/x/metrics") == []
        with pytest.raises(LimitExceededError):
            rest.list_names("/jobs/x/metrics")


@pytest.mark.parametrize("address", ["", "ftp://a", "http://", "http://a:b", "host:8081"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="--rest"):
        KIND.make("t", {"rest": address}, None)
