"""Tests of MLflow's relay in a run: each write reaches the outbox once; a registry and a store replay the outbox."""

import contextlib
import http.client
import json
import math
import socket
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread
from unittest import mock
from urllib.parse import urlencode, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.client.transport import Response
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.launch import tracked_runs
from jobmeter.collect.launch.relay import MlflowRelay
from jobmeter.collect.launch.tracked_runs import MOST_POINTS, TrackedRuns
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Spool
from jobmeter.errors import ForbiddenError, LimitExceededError, NotFoundError, UnauthenticatedError, UnavailableError
from jobmeter.model.extra import merge_extra
from jobmeter.model.record import MAX_EXTRA_BYTES
from jobmeter.wire.mlflow.names import convert_key, run_id
from jobmeter.wire.mlflow.runs import Run
from jobmeter.wire.mlflow.values import MetricValue
from jobmeter.wire.native.decode import decode

ROOT = Path(__file__).parents[4]
NOW = 1_795_188_836_000
PREFIX = "/api/2.0/mlflow"


class WallClock:
    """Clock that a test advances."""

    def __init__(self):
        self.time_ms, self.seconds = NOW, 0.0

    def now_ms(self):
        return self.time_ms

    def monotonic(self):
        return self.seconds


class AnsweringDelivery(Delivery):
    """Delivery with a server whose answers a test sets. The server is away while ``answers`` is None."""

    def __init__(self):
        super().__init__(Outbox(None), lambda: self, WallClock())
        self.answers = None
        self.calls = []

    @property
    def requester(self):
        return self

    def flush(self, timeout):
        return self.answers is not None

    def request(self, method, path, body=None, headers=None):
        self.calls.append((method, path, (headers or {}).get("Authorization", "")))
        if self.answers is None:
            raise UnavailableError("no answer")
        found = self.answers(method, path, headers or {})
        if isinstance(found, Exception):
            raise found
        return Response(200, {}, json.dumps(found).encode())


class Place:
    """Relay of the job ``train-7``, and a program that calls the relay."""

    def __init__(self, folder=None):
        self.clock, self.delivery = WallClock(), AnsweringDelivery()
        self.outbox = Outbox(None if folder is None else Spool(folder))
        self.runs = TrackedRuns("train-7", "", self.outbox, self.clock)
        self.relay = MlflowRelay(self.runs, self.delivery, "lin", self.clock)
        self.environment = self.relay.extend_environment({})
        self.address = urlsplit(self.environment["MLFLOW_TRACKING_URI"])
        self.relay.start()

    def raw(self, method, path, body=b"", **headers):
        connection = http.client.HTTPConnection(self.address.netloc, timeout=60)
        with contextlib.closing(connection):
            token = {"Authorization": f"Bearer {self.environment['MLFLOW_TRACKING_TOKEN']}"}
            connection.request(method, path, body, {**token, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def post(self, name, /, **body):
        return self.raw("POST", f"{PREFIX}/{name}", json.dumps(body).encode())

    def get(self, name, /, **query):
        return self.raw("GET", f"{PREFIX}/{name}?{urlencode(query)}")

    def create(self, **fields):
        status, found = self.post("runs/create", **fields)
        assert status == 200, found
        return found["run"]["info"]["run_id"]

    def log(self, run, key, value, at=0, step=0):
        return self.post("runs/log-metric", run_id=run, key=key, value=value, timestamp=NOW + at, step=step)

    def stored(self):
        return stored_in(self.runs.outbox)


def stored_in(outbox):
    """Deliver the outbox. Return the runs that a server then has, and the values by run and metric."""
    extra, body = None, b""
    values: dict[tuple[str, str], dict[int, float]] = {}
    while batch := outbox.peek(2**30):
        body += batch.body
        outbox.release(batch.end)
    decoded = decode(body)
    for records in decoded.records:
        extra = merge_extra(extra, [record.extra or {} for record in records.jobs])
    for samples in decoded.batches:
        for at, time, value in zip(samples.index, samples.time, samples.value, strict=True):
            series = samples.series[at]
            assert (series.job, series.project) == ("train-7", "default")
            values.setdefault((dict(series.labels).get("mlflow_run", ""), series.metric), {})[int(time) - NOW] = value
    return (json.loads(extra)["mlflow"]["runs"] if extra else {}), values


@contextlib.contextmanager
def made(folder=None):
    place = Place(folder)
    try:
        yield place
    finally:
        place.relay.stop()
        place.outbox.close()


@pytest.fixture
def place():
    with made() as one:
        yield one


def test_a_run_needs_no_server(place):
    run = place.create(experiment_id="0", run_name="first", tags=[{"key": "jobmeter.replica", "value": "worker-1"}])
    assert run.startswith("train-2D7--")
    assert place.log(run, "loss", 0.5, step=3) == (200, {})
    assert place.log(run, "odd", "NaN", at=1)[0] == 200
    batch = {"params": [{"key": "lr", "value": "0.10"}], "tags": [{"key": "a/b", "value": "1.50"}]}
    assert place.post("runs/log-batch", run_id=run, **batch)[0] == 200
    assert place.post("runs/set-tag", run_id=run, key="c", value="2.50")[0] == 200
    assert place.post("runs/log-parameter", run_uuid=run, key="depth", value="050")[0] == 200
    ended = place.post("runs/update", run_id=run, status="FINISHED", end_time=str(NOW + 9))[1]["run_info"]
    assert (ended["status"], ended["end_time"]) == ("FINISHED", NOW + 9)
    assert not place.runs.outbox.filled.is_set(), "the next samples take them along"
    runs, values = place.stored()
    assert runs[run]["params"] == {"lr": "0.10", "depth": "050"}
    assert runs[run]["tags"].items() >= {"a/b": "1.50", "c": "2.50", "mlflow.runName": "first"}.items()
    assert (runs[run]["status"], runs[run]["end"], runs[run]["replica"]) == ("FINISHED", NOW + 9, "worker-1")
    assert values == {
        (run, "app.loss"): {0: 0.5},
        ("", "app.step"): {0: 3.0},
        (run, "external.mlflow.step"): {0: 3.0, 1: 0.0},
    }
    found = place.get("runs/get", run_id=run)[1]["run"]
    assert {one["key"]: one["value"] for one in found["data"]["metrics"]} == {"loss": 0.5, "odd": "NaN"}
    history = place.get("metrics/get-history", run_id=run, metric_key="loss")[1]["metrics"]
    assert history == [{"key": "loss", "value": 0.5, "timestamp": NOW, "step": 3}]


def test_requests_share_a_connection(place):
    run = place.create()
    connection = http.client.HTTPConnection(place.address.netloc, timeout=60)
    with contextlib.closing(connection):
        token = {"Authorization": f"Bearer {place.environment['MLFLOW_TRACKING_TOKEN']}"}
        for at in range(3):
            body = {"run_id": run, "key": "loss", "value": at, "timestamp": NOW + at}
            connection.request("POST", f"{PREFIX}/runs/log-metric", json.dumps(body), token)
            assert connection.getresponse().read() == b"{}"
        connection.request("GET", "/version", headers=token)
        assert connection.getresponse().read() == b"3.17.0"


LOGGED = st.lists(
    st.tuples(
        st.sampled_from(["loss", "val/top 1", "é"]),
        st.integers(0, 30),
        st.integers(-3, 10**6),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(LOGGED)
def test_the_history_without_a_server_comes_from_the_outbox(logged):
    runs = TrackedRuns("train-7", "", Outbox(None), WallClock())
    run = Run(id=run_id("train-7", "0" * 12), job="train-7", experiment="0", status="RUNNING", start=NOW)
    runs.create(run)
    want: dict[str, dict[int, tuple[int, float]]] = {}
    for key, time, step, value in logged:
        runs.log(run, [MetricValue(key, value, NOW + time, step)])
        want.setdefault(key, {})[NOW + time] = (step, value)
    stored = stored_in(runs.outbox)[1]
    for key, by_time in want.items():
        found = runs.read_history(run.id, key)
        assert {one.time: (one.step, one.value) for one in found} == by_time
        assert [one.time for one in found] == sorted(by_time)
        assert runs.find_newest(run.id)[key].value == by_time[max(by_time)][1]
        assert stored[run.id, convert_key(key)[0]] == {time - NOW: value for time, (_, value) in by_time.items()}


SERVING = """
import sys
from pathlib import Path
from tests.unit.collect.launch.test_relay import Place
place = Place(Path(sys.argv[1]))
print(place.environment["MLFLOW_TRACKING_URI"], place.environment["MLFLOW_TRACKING_TOKEN"], flush=True)
sys.stdin.read()
"""


def test_acknowledged_writes_survive_a_kill_and_the_next_attempt_resumes_the_run(tmp_path):
    command = [sys.executable, "-c", SERVING, str(tmp_path / "spool")]
    killed = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    with contextlib.closing(killed.stdout):
        uri, token = killed.stdout.readline().split()
        with made() as caller:
            caller.address, caller.environment = urlsplit(uri), {"MLFLOW_TRACKING_TOKEN": token}
            run = caller.create(run_name="first")
            assert caller.post("runs/set-tag", run_id=run, key="a", value="b")[0] == 200
            answered = [at for at in range(20) if caller.log(run, "loss", at / 7, at, at)[0] == 200]
        killed.kill()
        killed.communicate()
    with made(tmp_path / "spool") as place:
        assert place.get("runs/get", run_id=run)[1]["run"]["data"]["tags"][0] == {"key": "a", "value": "b"}
        assert place.log(run, "loss", -1.0, 50, 50)[0] == 200
        assert place.log(run_id("train-7", "1" * 12), "loss", -1.0)[0] == 503
        runs, values = place.stored()
    assert runs[run]["tags"]["mlflow.runName"] == "first"
    assert answered == list(range(20))
    assert values[run, "app.loss"] == {**{at: at / 7 for at in answered}, 50: -1.0}


def test_concurrent_ranks_lose_no_value_and_no_tag(place):
    ready, runs = Barrier(8), []

    def rank(number):
        ready.wait(60)
        run = place.create(run_name=f"r{number}")
        runs.append(run)
        for at in range(10):
            assert place.log(run, "loss", number, at, at)[0] == 200
            assert place.post("runs/set-tag", run_id=run, key=f"t{at}", value="x")[0] == 200

    threads = [Thread(target=rank, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    stored, values = place.stored()
    assert sorted(stored) == sorted(runs)
    assert all(len(one["tags"]) == 11 for one in stored.values())
    assert all(len(values[run, "app.loss"]) == 10 for run in runs)


def test_a_client_that_disconnects_stores_no_value_and_the_relay_serves_on(place):
    run = place.create()
    body = json.dumps({"run_id": run, "key": "loss", "value": 1.0, "timestamp": NOW}).encode()
    token = place.environment["MLFLOW_TRACKING_TOKEN"]
    head = f"POST {PREFIX}/runs/log-metric HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    for part in (head.encode() + body[:-1], head.encode()[:20], b""):
        with socket.create_connection((place.address.hostname, place.address.port)) as sender:
            sender.sendall(part)
    assert place.log(run, "other", 2.0)[0] == 200
    assert {metric for _, metric in place.stored()[1]} == {"app.other", "external.mlflow.step"}


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("runs/log-metric", {"key": "loss", "value": "x", "timestamp": NOW}, 400, "is not a number"),
        ("runs/log-metric", {"key": "loss", "value": 1}, 400, "timestamp"),
        ("runs/log-metric", {"key": "loss", "value": 1, "timestamp": NOW + 10**7}, 400, "ahead of the clock"),
        ("runs/log-metric", {"run_id": "other--1", "key": "a", "value": 1, "timestamp": NOW}, 404, "not found"),
        ("runs/log-metric", {"run_id": ""}, 400, "run_id"),
        ("runs/log-parameter", {"key": "lr", "value": "2"}, 400, "not allowed"),
        ("runs/update", {"status": "GONE"}, 400, "is not one of"),
        ("runs/create", {"experiment_id": "7"}, 404, "No Experiment"),
        ("runs/create", {"tags": 7}, 400, "Invalid request"),
        ("experiments/create", {"name": "a", "tags": [{"key": "a"}]}, 400, "tag the runs"),
        ("runs/log-inputs", {}, 404, "does not answer"),
        ("runs/search", {"filter": "x"}, 400, "Invalid clause"),
    ],
)
def test_a_wrong_request_is_refused_as_by_the_server(place, name, body, status, words):
    run = place.create()
    assert place.post("runs/log-parameter", run_id=run, key="lr", value="1")[0] == 200
    found = place.post(name, **{"run_id": run, **body})
    assert found[0] == status
    assert words in found[1]["message"]


@pytest.mark.parametrize("body", [b"{", b"[1]", b"7", b'"a"', b"\xff", b"[" * 10_000])
def test_a_body_that_is_no_object_is_refused(place, body):
    assert place.raw("POST", f"{PREFIX}/runs/create", body)[0] == 400


def test_only_the_commands_programs_may_log(place):
    for token in ("", "Bearer x", "Basic eDp5", "Bearer é"):
        body = {"Authorization": token.encode().decode("latin-1")}
        assert place.raw("POST", f"{PREFIX}/runs/create", b"{}", **body)[0] == 401
    assert not place.runs.outbox.size


def test_a_request_without_the_token_is_refused_before_its_body_is_read(place):
    head = f"POST {PREFIX}/runs/create HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: {4 * 2**20}\r\n\r\n"
    with socket.create_connection((place.address.hostname, place.address.port), timeout=30) as sender:
        sender.sendall(head.encode())
        with sender.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 401")


def test_a_path_cannot_name_another_host(place):
    place.delivery.answers = lambda *_: {"token": "jmt_1"}
    assert place.raw("GET", "@elsewhere.example/x")[0] == 400
    assert place.delivery.calls == []


def test_a_body_beyond_the_limit_is_refused(place):
    assert place.raw("POST", f"{PREFIX}/runs/create", b"", **{"Content-Length": str(2**40)})[0] == 400


def test_an_experiment_needs_no_server(place):
    made_id = place.post("experiments/create", name="vision")[1]["experiment_id"]
    assert place.get("experiments/get", experiment_id=made_id)[1]["experiment"]["name"] == "vision"
    found = place.get("experiments/get-by-name", experiment_name="vision")[1]["experiment"]
    assert found["experiment_id"] == made_id


def test_a_search_without_a_server_finds_the_runs_of_this_job(place):
    runs = [place.create(experiment_id="0", start_time=NOW + at) for at in range(3)]
    for at, run in enumerate(runs):
        place.log(run, "loss", at)
    place.post("runs/delete", run_id=runs[2])
    search = {"experiment_ids": ["0"], "filter": "metrics.loss < 2", "order_by": ["metrics.loss ASC"]}
    first = place.post("runs/search", max_results=1, **search)[1]
    rest = place.post("runs/search", page_token=first["next_page_token"], **search)[1]
    assert [one["info"]["run_id"] for one in first["runs"] + rest["runs"]] == runs[:2]
    gone = place.post("runs/search", experiment_ids=["0"], run_view_type="DELETED_ONLY")[1]["runs"]
    assert [one["info"]["run_id"] for one in gone] == runs[2:]
    assert place.post("runs/set-tag", run_id=runs[2], key="a", value="b")[0] == 400


# Tests of answers that come from the server.


def test_the_server_answers_reads_with_a_token_for_this_job_alone(place):
    tokens = iter(["jmt_1", "jmt_2"])

    def answers(method, path, headers):
        if path.endswith("/run-token"):
            return {"token": next(tokens)}
        return {"whose": "server"} if headers["Authorization"] == "Bearer jmt_2" else UnauthenticatedError("expired")

    run = place.create()
    place.delivery.answers = answers
    assert place.get("runs/get", run_id=run) == (200, {"whose": "server"})
    assert place.post("runs/search", experiment_ids=["0"]) == (200, {"whose": "server"})
    assert place.post("runs/log-inputs") == (200, {"whose": "server"})
    assert place.get("metrics/get-history", run_id=run, metric_key="a") == (200, {"whose": "server"})


def test_a_read_that_the_server_refuses_is_refused(place):
    place.delivery.answers = lambda _method, path, _headers: (
        {"token": "t"} if path.endswith("/run-token") else NotFoundError("Run with id='r' not found")
    )
    assert place.get("runs/get", run_id="r")[0] == 404
    run = place.create()
    assert place.get("runs/get", run_id=run)[1]["run"]["info"]["run_id"] == run, "a run that was logged here"


def test_a_key_without_the_right_for_runs_reads_the_runs_of_this_job(place):
    place.delivery.answers = lambda *_: ForbiddenError("no")
    run = place.create()
    assert place.get("runs/get", run_id=run)[0] == 200


def test_a_server_that_is_away_is_not_called_for_each_read(place):
    run = place.create()
    place.delivery.answers = lambda *_: UnavailableError("slow")
    assert place.get("runs/get", run_id=run)[0] == 200
    called = len(place.delivery.calls)
    assert place.get("runs/get", run_id=run)[0] == 200
    assert len(place.delivery.calls) == called
    place.clock.seconds += 60
    assert place.get("runs/get", run_id=run)[0] == 200
    assert len(place.delivery.calls) > called


def test_a_resumed_run_keeps_its_replica_attempt_and_params(place):
    run = run_id("train-7", "0" * 12)
    fields = {"experiment": "0", "status": "FINISHED", "start": 5, "node": "n2", "replica": "worker-3", "attempt": 2}
    stored = {"mlflow": {"runs": {run: {**fields, "params": {"lr": "1"}}}}}
    with mock.patch.object(place.outbox, "list_stored", wraps=place.outbox.list_stored) as readings:
        for _ in range(3):
            assert place.log(run, "loss", 1.0)[0] == 503, "only the server knows the run"
    assert readings.call_count == 1, "the spool may be large"
    assert len(place.delivery.calls) == 1, "no request waits for a server that is away"
    place.clock.seconds += 60
    place.delivery.answers = lambda *_: {"job": {"extra": stored}}
    assert place.log(run, "loss", 1.0)[0] == 200
    place.delivery.answers = None
    assert place.log(run, "loss", 2.0, at=1)[0] == 200
    assert place.post("runs/log-parameter", run_id=run, key="lr", value="2")[0] == 400
    assert place.post("runs/update", run_id=run, status="RUNNING")[0] == 200
    (batch, _) = decode(place.outbox.peek(2**30).body).batches
    assert {(one.node, one.replica, one.attempt) for one in batch.series} == {("n2", "worker-3", 2)}
    assert place.get("metrics/get-history", run_id=run, metric_key="loss")[0] == 503
    assert place.get("runs/get", run_id=run)[1]["run"]["info"]["status"] == "RUNNING"
    place.clock.seconds += 60
    place.delivery.answers = lambda *_: {"job": {"extra": stored}}
    assert place.log(run_id("train-7", "1" * 12), "loss", 1.0)[0] == 404


@pytest.mark.parametrize("answer", [{"job": {}}, NotFoundError("no job")])
def test_a_run_on_disk_is_resumed_though_the_server_does_not_have_it_yet(tmp_path, answer):
    with made(tmp_path) as place:
        run = place.create()
    with made(tmp_path) as place:
        place.delivery.answers = lambda *_: answer
        assert place.log(run, "loss", 1.0)[0] == 200
        assert place.log(run_id("train-7", "1" * 12), "loss", 1.0)[0] == 404


# Tests of limits.


def test_a_long_history_needs_the_server(place):
    run = place.create()
    for first in range(0, MOST_POINTS + 1_000, 1_000):
        points = [
            {"key": "loss", "value": 1.0, "timestamp": NOW + first + at - 10**6, "step": 0} for at in range(1_000)
        ]
        assert place.post("runs/log-batch", run_id=run, metrics=points)[0] == 200
    assert place.get("metrics/get-history", run_id=run, metric_key="loss")[0] == 503
    assert place.get("runs/get", run_id=run)[1]["run"]["data"]["metrics"][0]["value"] == 1.0


def test_the_limit_on_metrics_does_not_stop_updates_of_existing_metrics(place, monkeypatch):
    monkeypatch.setattr(tracked_runs, "_MOST_KEYS", 1)
    run = place.create()
    for at, key in enumerate(("loss", "other", "other", "loss")):
        assert place.log(run, key, at, at)[0] == 200
    metrics = place.get("runs/get", run_id=run)[1]["run"]["data"]["metrics"]
    assert [(one["key"], one["value"]) for one in metrics] == [("loss", 3.0)]


def test_runs_are_recorded_again_after_frames_were_dropped(tmp_path):
    with made() as place:
        place.runs.outbox = Outbox(Spool(tmp_path, max_bytes=4_096, segment_bytes=512))
        runs = {place.create(run_name=name): name for name in ("first", "second")}
        for at in range(100):
            assert place.log(next(iter(runs)), "loss", at, at, at)[0] == 200
        assert Delivery(place.runs.outbox, lambda: place.delivery, place.clock).lost.keys() == {"spool.full"}
        assert place.stored()[0] == {}, "the records of the runs are among the dropped frames"
        for run in runs:
            assert place.post("runs/update", run_id=run, status="FINISHED")[0] == 200
        stored = place.stored()[0]
        assert {run: (one["status"], one["tags"]["mlflow.runName"]) for run, one in stored.items()} == {
            run: ("FINISHED", name) for run, name in runs.items()
        }


def test_a_run_is_recorded_again_after_only_records_were_dropped(place):
    place.runs.outbox = Outbox(None, memory_bytes=1)  # only the newest frame fits
    run = place.create(run_name="first")
    for key in ("a", "b"):
        assert place.post("runs/set-tag", run_id=run, key=key, value="x")[0] == 200
    assert not any(place.runs.outbox.dropped.values())
    assert place.stored()[0][run]["tags"].items() >= {"a": "x", "b": "x", "mlflow.runName": "first"}.items()


def test_a_run_beyond_the_limit_of_the_record_is_not_stored(place):
    tags = {"note": "x" * MAX_EXTRA_BYTES}
    run = Run(id=run_id("train-7", "0" * 12), job="train-7", experiment="0", status="RUNNING", start=NOW, tags=tags)
    with pytest.raises(LimitExceededError):
        place.runs.create(run)
    assert place.runs.all == []
    with pytest.raises(UnavailableError):
        place.runs.read_history(run.id, "loss")


def test_programs_reach_the_relay_without_a_proxy(place):
    assert "NO_PROXY" not in place.relay.extend_environment({})
    assert place.relay.extend_environment({"http_proxy": "http://p"})["NO_PROXY"] == "127.0.0.1"
    assert place.relay.extend_environment({"HTTP_PROXY": "http://p", "no_proxy": "a,b"})["no_proxy"] == "a,b,127.0.0.1"


def test_nonfinite_values_are_texts(place):
    run = place.create()
    for at, word in enumerate(("NaN", "Infinity", "-Infinity")):
        assert place.log(run, "odd", word, at, at)[0] == 200
    found = place.get("metrics/get-history", run_id=run, metric_key="odd")[1]["metrics"]
    assert [one["value"] for one in found] == ["NaN", "Infinity", "-Infinity"]
    assert not math.isfinite(float(found[0]["value"]))
