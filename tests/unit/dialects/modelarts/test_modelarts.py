import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes import FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.call import Call
from jobmeter.access.principal import Scope
from jobmeter.dialects.base import Context, drive
from jobmeter.dialects.modelarts import MODELARTS
from jobmeter.dialects.modelarts.names import ALL_PHASES, METRICS, PHASES
from jobmeter.errors import (
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    NotFoundError,
    ThrottledError,
    UnauthenticatedError,
)
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import Allocation, Job, JobState, JobView, Replica
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobQuestion, Line, LogQuestion, MetricQuery, MetricResult
from jobmeter.query.series import FoundSeries, SeriesQuestion
from jobmeter.registry.open import open_registry
from jobmeter.settings import Limits
from jobmeter.testing.dialect import ERRORS, REQUEST_ID, DialectTests

NOW_MS = 1_795_188_836_000
MINUTE = 60_000
HEX = REQUEST_ID.replace("-", "").lower()
PATH = "/v2/default/training-jobs/j1"


class TestModelArts(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return MODELARTS

    def decode_result(self, given, question):
        if isinstance(question, SeriesQuestion):
            return FoundSeries([Series(metric, job="j") for metric in given or ()])
        return super().decode_result(given, question)


def refused(error, headers=()):
    answer = MODELARTS.render_error(Call("GET", "/v2/p/x", "", headers), Context(0, REQUEST_ID), error)
    return answer, json.loads(answer.body)


def operate(path, run, query=""):
    call = Call("GET", path, query, (("host", "h"),))
    match = MODELARTS.find_operation(call)
    assert match is not None
    return drive(match.operation.answer(call, Context(NOW_MS, REQUEST_ID, match.path)), run)


def test_a_parameter_of_the_body_is_not_read_from_the_query():
    call = Call("POST", "/v2/default/training-jobs/j1/actions", "action_type=terminate", (("host", "h"),), b"{}")
    match = MODELARTS.find_operation(call)
    assert match is not None
    with pytest.raises(InvalidRequestError) as found:
        drive(match.operation.answer(call, Context(NOW_MS, REQUEST_ID, match.path)), lambda question: question)
    assert found.value.field == "action_type"


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_what_the_sdk_reads(error):
    answer, body = refused(error)
    assert dict(answer.headers)["X-Request-Id"] == HEX
    assert answer.content_type == "application/json"
    assert body["error_code"]
    assert body["error_msg"]
    assert set(body) == {"error_code", "error_msg", *(["request_id"] if body["error_code"].startswith("APIGW") else [])}


SIGNED = (
    (
        "authorization",
        "SDK-HMAC-SHA256 Access=JMAK1, SignedHeaders=x-sdk-date, Signature=00",
    ),
    ("x-sdk-date", "20261120T153356Z"),
)


@pytest.mark.parametrize(
    ("reason", "headers", "message"),
    [
        ("missing", (), "x-auth-token not found"),
        ("unknown-key", (("x-auth-token", "x"),), "decrypt token fail"),
        ("unknown-key", SIGNED, "ak JMAK1 not exist"),
        ("unknown-key", (*SIGNED, ("x-auth-token", "x")), "decrypt token fail"),
        ("stale", SIGNED, "calc ak sk signature fail:signature expired"),
        ("revoked", SIGNED, "verify ak JMAK1 fail: no"),
        ("malformed", (("authorization", "SDK-"),), "verify token fail: no"),
    ],
)
def test_a_credential_that_does_not_hold(reason, headers, message):
    answer, body = refused(UnauthenticatedError("no", reason), headers)
    assert (answer.status, body["error_code"]) == (401, "APIGW.0301")
    assert body["error_msg"] == f"Incorrect IAM authentication information: {message}"
    assert body["request_id"] == HEX


def test_a_wrong_signature_shows_what_should_have_been_signed():
    _, body = refused(UnauthenticatedError("no", "bad-signature"), SIGNED)
    message = "verify aksk signature fail, canonicalRequest:GET|/v2/p/x/||x-sdk-date:20261120T153356Z||x-sdk-date|e3b0"
    assert message in body["error_msg"]


def test_too_many_requests_say_when_to_come_back():
    answer, body = refused(ThrottledError("busy", 1500))
    assert (answer.status, body["error_code"]) == (429, "ModelArts.2799")
    assert dict(answer.headers)["Retry-After"] == "2"


def test_a_bug_reveals_nothing():
    answer, body = refused(JobmeterError("password=hunter2"))
    assert answer.status == 500
    assert "hunter2" not in body["error_msg"]


def test_the_six_metrics_are_in_the_documented_order():
    assert list(METRICS) == ["cpuUsage", "memUsage", "gpuUtil", "gpuMemUsage", "npuUtil", "npuMemUsage"]


def test_every_state_has_a_documented_phase():
    assert set(PHASES) == set(JobState)
    assert {phase for phase, _ in PHASES.values()} <= set(ALL_PHASES)


@pytest.mark.parametrize("path", ["/v2/", "/v2/p", "/v3", "/v3/projects/x", "/v1/p/training-jobs"])
def test_other_paths_are_left_alone(path):
    assert MODELARTS.find_operation(Call("GET", path, "", ())) is None


def _never(question):
    raise AssertionError(question)


def _unknown(_):
    raise NotFoundError("there is no job j1", "job", "j1")


def start(operation, context, run):
    values = {
        parameter.name: {"project_id": "default", "report_type": "training-event"}.get(parameter.name, "j1")
        for parameter in operation.parameters
        if parameter.where == "path"
    }
    body = b'{"action_type": "terminate", "type": "saved", "description": "text"}'
    call = Call(operation.method, operation.path.format(**values), "job_name=a", (("host", "h"),), body)
    match = MODELARTS.find_operation(call)
    assert match is not None
    context = msgspec.structs.replace(context, path=match.path)
    try:
        return drive(operation.answer(call, context), run)
    except JobmeterError as error:
        return MODELARTS.render_error(call, context, error)


@pytest.mark.parametrize("operation", MODELARTS.operations, ids=lambda operation: operation.name)
def test_every_operation_keeps_to_the_project_of_the_key(operation):
    answer = start(operation, Context(NOW_MS, REQUEST_ID, project="other"), _never)
    if operation.name == "KeystoneListProjects":
        assert [one["id"] for one in json.loads(answer.body)["projects"]] == ["other"]
        return
    message = "The project ID (default) in the request does not match that(other) in the token."
    assert (answer.status, json.loads(answer.body)) == (404, {"error_code": "ModelArts.2786", "error_msg": message})


@pytest.mark.parametrize(
    "operation",
    [operation for operation in MODELARTS.operations if "{training_job_id}" in operation.path],
    ids=lambda operation: operation.name,
)
def test_every_operation_on_a_job_reports_that_it_is_not_there(operation):
    answer = start(operation, Context(NOW_MS, REQUEST_ID), _unknown)
    assert (answer.status, json.loads(answer.body)["error_code"]) == (400, "ModelArts.2775")


@given(
    start_ms=st.integers(NOW_MS - 30 * MINUTE, NOW_MS),
    end_ms=st.none() | st.integers(0, 30 * MINUTE),
    data=st.data(),
)
def test_series_have_one_value_for_each_minute_of_the_life(start_ms, end_ms, data):
    end_ms = None if end_ms is None else min(start_ms + end_ms, NOW_MS)
    state = JobState.RUNNING if end_ms is None else JobState.SUCCEEDED
    view = JobView(
        job=Job(id="j1", state=state, start=start_ms, end=end_ms), replicas=[Replica(name="worker-0")], allocations=[]
    )
    first, last = start_ms // MINUTE, (NOW_MS if end_ms is None else end_ms) // MINUTE
    measured = data.draw(
        st.dictionaries(
            st.sampled_from(sorted(METRICS)),
            st.dictionaries(st.integers(first, last), st.integers(0, 1000), min_size=1),
            min_size=1,
        )
    )

    def run(question):
        if isinstance(question, JobQuestion):
            return view
        assert isinstance(question, MetricQuery)
        assert question.range.start_ms == first * MINUTE
        assert last * MINUTE < question.range.end_ms <= (last + 1) * MINUTE
        lines = [
            Line(
                METRICS[name].name,
                "1",
                "worker-0",
                "",
                "",
                np.array(sorted(points), np.int64) * MINUTE,
                np.array([points[minute] / 1000 for minute in sorted(points)]),
            )
            for name, points in measured.items()
        ]
        return MetricResult(question, lines)

    body = json.loads(operate(f"{PATH}/metrics/worker-0", run).body)
    begun = end_ms is None or end_ms % MINUTE == 0
    length = last - first + 1
    if begun and not any(last in points for points in measured.values()):
        length -= 1
    assert [series["metric"] for series in body["metrics"]] == list(METRICS)
    for series in body["metrics"]:
        points = measured.get(series["metric"], {})
        wanted = [points.get(first + at, -10) / 10 for at in range(length)]
        assert series["value"] == wanted


class Log:
    """Log lines in the form of the store, for questions about one task."""

    def __init__(self, lines, page_bytes=None):
        self.lines = lines
        self.page_bytes = page_bytes
        self.reads = 0

    def __call__(self, question):
        if isinstance(question, JobQuestion):
            replicas = [Replica(name="worker-0")]
            return JobView(job=Job(id="j1", state=JobState.RUNNING), replicas=replicas, allocations=[])
        assert isinstance(question, LogQuestion)
        assert question.replicas == {"worker-0"}
        self.reads += 1
        low = -(2**63) if question.start_ns is None else question.start_ns
        high = 2**63 if question.end_ns is None else question.end_ns
        found = [line for line in self.lines if low <= line.time_ns < high]
        size = sum(len(line.text.encode()) for line in found)
        page = (found[::-1] if question.descending else found)[question.offset :][: question.limit]
        if self.page_bytes and sum(len(line.text) for line in page) > self.page_bytes:
            raise LimitExceededError("too large", "limit")
        return LogPage(page, len(found) if question.count else None, size if question.count else None)


def log(times):
    return [
        LogLine(time_ns=NOW_MS * 10**6 + time, text=f"{at} é", job="j1", replica="worker-0")
        for at, time in enumerate(sorted(times))
    ]


@given(times=st.lists(st.integers(0, 6), min_size=1, max_size=30), size=st.integers(1, 7))
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_lines_hold_each_line_once(order, times, size):
    store = Log(log(times))
    base, found = "", []
    while True:
        body = json.loads(operate(f"{PATH}/logs/worker-0", store, f"order={order}&lines={size}&base_line={base}").body)
        assert body["lines"] == body["content"].count("\n") <= size
        if not body["lines"]:
            break
        found += body["content"].splitlines()
        base = body["end_line"]
    wanted = [line.text for line in store.lines]
    assert found == (wanted if order == "asc" else wanted[::-1])
    assert body["end_line"] == base, "a page without lines goes on from where it was"


def test_a_tail_gets_what_was_written_since():
    store = Log(log([1, 2, 3]))
    newest = json.loads(operate(f"{PATH}/logs/worker-0", store, "lines=1").body)
    assert newest["content"] == "2 é\n"
    store.lines = log([1, 2, 3, 4])
    later = json.loads(operate(f"{PATH}/logs/worker-0", store, f"order=asc&base_line={newest['end_line']}").body)
    assert later["content"] == "3 é\n"


@pytest.mark.parametrize("width", [0, 40, 900, 60_000])
@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 2600])
def test_a_preview_is_the_newest_lines_that_fit(width, count):
    lines = [
        replace_text(line, "é" * (width // 2) + str(at)) for at, line in enumerate(log([n // 3 for n in range(count)]))
    ]
    body = json.loads(operate(f"{PATH}/tasks/worker-0/logs/preview", Log(lines)).body)
    whole = "".join(f"{line.text}\n" for line in lines)
    content = whole
    if len(whole.encode()) > 5 * 2**20:
        page_lines, size = [], 0
        for line in reversed(lines):
            size += len(line.text.encode()) + 1
            if size > 5 * 2**20:
                break
            page_lines.append(f"{line.text}\n")
        content = "".join(reversed(page_lines))
    assert body == {"content": content, "current_size": len(content.encode()), "full_size": len(whole.encode())}


def replace_text(line, text):
    return LogLine(time_ns=line.time_ns, text=text, job=line.job, replica=line.replica)


def test_a_preview_copes_with_lines_that_are_suddenly_long():
    short = [replace_text(line, "x") for line in log(range(2000, 3000))]
    long = [replace_text(line, "y" * 2000) for line in log(range(2000))]
    store = Log([*long, *short], page_bytes=2_100_000)
    body = json.loads(operate(f"{PATH}/tasks/worker-0/logs/preview", store).body)
    assert body["current_size"] == 2000 + 2000 * 2001
    assert store.reads == 4


def test_a_body_of_any_content_type_is_json():
    call = Call("POST", "/v2/default/training-job-searches", "", (("host", "h"),), b' {"limit": 99} ')
    match = MODELARTS.find_operation(call)
    assert match is not None
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        sent = replace(call, headers=(*call.headers, ("content-type", kind)))
        with pytest.raises(JobmeterError, match="99 is not between"):
            drive(match.operation.answer(sent, Context(NOW_MS, REQUEST_ID, match.path)), lambda _: None)


class House:
    """Running job of one task with a CPU sample each minute since ``start_ms``, behind the real executor."""

    def __init__(self, start_ms: int, values: np.ndarray) -> None:
        self.store, self.registry = MemoryStore(), FakeRegistry()
        self.registry.add_job(Job(id="j1", state=JobState.RUNNING, start=start_ms), [Replica(name="worker-0")], ())
        times = start_ms + MINUTE * np.arange(len(values), dtype=np.int64)
        series = Series("cpu.utilization", job="j1", replica="worker-0")
        self.store.append_all((SampleBatch([series], np.zeros(len(values), np.uint32), times, values),))
        self.executor = Executor(self.store, self.registry, SetClock(NOW_MS), Limits())

    def metrics(self) -> dict[str, list[float]]:
        answer = operate(f"{PATH}/metrics/worker-0", lambda question: self.executor.run(question, Scope(None)))
        assert answer.status == 200
        return {one["metric"]: one["value"] for one in json.loads(answer.body)["metrics"]}


@pytest.mark.parametrize(("days", "answered"), [(40, 40), (100, 90)])
def test_a_job_of_many_days_is_answered_by_the_minute(days, answered):
    minutes = days * 1440
    start_ms = NOW_MS // MINUTE * MINUTE - minutes * MINUTE
    values = np.round(np.random.default_rng(5).random(minutes), 2)
    metric_bodies = House(start_ms, values).metrics()
    assert {len(series) for series in metric_bodies.values()} == {answered * 1440}
    assert metric_bodies["cpuUsage"] == pytest.approx((values[-answered * 1440 :] * 100).tolist())
    assert set(metric_bodies["gpuUtil"]) == {-1}


def test_a_percentage_is_from_0_to_100():
    start_ms = NOW_MS // MINUTE * MINUTE - 4 * MINUTE
    metric_bodies = House(start_ms, np.array([-0.04, -1e-12, 1.0000000001, 3.5])).metrics()
    assert metric_bodies["cpuUsage"] == [0, 0, 100, 100]


@pytest.mark.parametrize(
    ("allocations", "host"),
    [((), {}), ((Allocation(replica="", node="n1", device="gpu0", start=1),), {"host_ip": "n1"})],
)
def test_a_job_without_replicas_has_the_task_that_its_status_names(allocations, host):
    view = JobView(job=Job(id="j1", state=JobState.RUNNING, start=1), replicas=[], allocations=list(allocations))
    answer = operate(f"{PATH}/tasks", lambda _: view)
    assert json.loads(answer.body) == [{"task": "worker-0", **host, "schedule_count": 1}]


def test_samples_of_replicas_without_a_record_are_joined():
    house = House(NOW_MS // MINUTE * MINUTE - MINUTE, np.array([0.2]))
    house.store.append_all(
        (
            SampleBatch(
                [Series("cpu.utilization", job="j1", replica="worker-1")],
                np.zeros(1, np.uint32),
                np.array([NOW_MS // MINUTE * MINUTE - MINUTE], np.int64),
                np.array([0.4]),
            ),
        )
    )
    house.registry.add_job(Job(id="j1", state=JobState.RUNNING, start=NOW_MS - MINUTE), (), ())
    assert house.metrics()["cpuUsage"] == [pytest.approx(30.0)]


SHOWN: dict[str, dict[str, Any]] = {
    "unnamed": {},
    "named": {"name": "resnet", "user": "ann"},
    "brought": {
        "extra": {
            "modelarts": {
                "algorithm": {"name": "AdaGrad"},
                "metadata": {"description": "old", "user_name": "bob"},
                "spec": {"resource": {"pool_id": "pool-x"}},
            }
        }
    },
    "both": {
        "name": "unnamed-not",
        "user": "eve",
        "resource_group": "pool-y",
        "extra": {
            "modelarts": {
                "algorithm": {"name": "Lion"},
                "algorithm_name": "AdaGrad",
                "description": "new",
                "metadata": {"description": "old", "user_name": "bob"},
            }
        },
    },
}
FOUND_BY = {
    "name": lambda body: body["metadata"]["name"],
    "algorithm_name": lambda body: body.get("algorithm", {}).get("name"),
    "user_name": lambda body: body["metadata"].get("user_name"),
    "description": lambda body: body["metadata"].get("description"),
    "pool_id": lambda body: body.get("spec", {}).get("resource", {}).get("pool_id"),
}


def test_a_search_finds_each_job_by_what_it_is_shown_with(tmp_path):
    with contextlib.closing(open_registry(f"sqlite:///{tmp_path / 'registry.db'}", Retention())) as registry:
        records = [JobRecord(job_id=job, created=NOW_MS, **fields) for job, fields in SHOWN.items()]
        registry.record("default", Records(jobs=records), NOW_MS)

        def run(question):
            if isinstance(question, JobQuestion):
                return registry.find_job(frozenset({"default"}), question.ref.id, NOW_MS)[0]
            return registry.list_jobs(question, NOW_MS)

        def items(*filters):
            body = json.dumps({"filters": list(filters)}).encode()
            call = Call("POST", "/v2/default/training-job-searches", "", (("host", "h"),), body)
            match = MODELARTS.find_operation(call)
            assert match is not None
            answer = drive(match.operation.answer(call, Context(NOW_MS, REQUEST_ID, match.path)), run)
            return json.loads(answer.body)["items"]

        every = items()
        assert len(every) == len(SHOWN)
        for key, shown in FOUND_BY.items():
            for value in {shown(body) for body in every} - {None}:
                expected = {body["metadata"]["id"] for body in every if shown(body) == value}
                for operator in ("in", "not"):
                    found = {
                        body["metadata"]["id"] for body in items({"key": key, "operator": operator, "value": [value]})
                    }
                    assert found == (expected if operator == "in" else set(SHOWN) - expected), (key, operator, value)


def test_a_job_of_samples_alone_was_created_with_the_first_of_them():
    job = Job(id="j1", state=JobState.RUNNING, start=5_000, first_sample=5_000, last_sample=9_000)
    answer = operate(PATH, lambda _: JobView(job=job, replicas=[], allocations=[]))
    assert json.loads(answer.body)["metadata"]["create_time"] == 5_000
