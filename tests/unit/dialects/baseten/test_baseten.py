import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.limit import Rate
from jobmeter.dialects.base import Context, drive
from jobmeter.dialects.baseten import BASETEN
from jobmeter.dialects.baseten.bodies import find_status
from jobmeter.dialects.baseten.names import STATUSES
from jobmeter.dialects.baseten.operations.search import iterate_filters
from jobmeter.errors import (
    InvalidRequestError,
    JobmeterError,
    NotFoundError,
    ThrottledError,
    UnauthenticatedError,
)
from jobmeter.model.job import Allocation, Job, JobState, JobView, Operator, Replica
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.record import check_record, decode_record
from jobmeter.model.steps import STEPS
from jobmeter.query.request import By, JobQuestion, Line, LogQuestion, MetricQuery, MetricResult
from jobmeter.testing.dialect import ERRORS, REQUEST_ID, DialectTests

CASES = Path(__file__).parent / "cases"
JOB_PATH = "/v1/training_projects/p/jobs/j"
NOW = 1_795_188_836_000
FORM = (("content-type", "application/x-www-form-urlencoded"),)


class TestBaseten(DialectTests):
    cases = CASES

    def make_dialect(self):
        return BASETEN


def call(path, body="", method="POST", query="", headers=FORM):
    return Call(method, path, query, headers, body if isinstance(body, bytes) else body.encode())


def answer_of(request, answers, now_ms=NOW):
    """Return the questions of an operation, and its body."""
    questions = []

    def answered(question):
        questions.append(question)
        return answers(question)

    match = BASETEN.find_operation(request)
    assert match is not None
    body = drive(match.operation.answer(request, Context(now_ms, REQUEST_ID, match.path)), answered)
    return questions, json.loads(body.body)


def view(**fields):
    replicas, allocations = fields.pop("replicas", []), fields.pop("allocations", [])
    return JobView(job=Job(id="j", project="p", **fields), replicas=replicas, allocations=allocations)


def answering(own, *lines):
    def answered(question):
        if isinstance(question, JobQuestion):
            return own
        found = [line for line in lines if line.metric in question.metrics]
        return MetricResult(question, found if question.by is By.DEVICE else [])

    return answered


def line(metric, points, replica="worker-0", node="n", device=""):
    times, values = zip(*points, strict=True) if points else ((), ())
    return Line(metric, "", replica, node, device, np.array(times, np.int64), np.array(values, np.float64))


def metrics(own, *lines, body="{}"):
    questions, found = answer_of(call(f"{JOB_PATH}/metrics", body), answering(own, *lines))
    return [question for question in questions if isinstance(question, MetricQuery)], found


# Compare the order of the keys, and the type of each value, with the document.
def test_the_sample_answer_has_the_documents_keys_in_their_order():
    case = json.loads((CASES / "sample_answer.json").read_text())
    request = call(case["request"]["path"], case["request"]["body"])
    own = view(state=JobState.FAILED, start=NOW, end=NOW)
    _, body = answer_of(request, answering(own, line("cpu.usage", [(NOW, 123.0)])))
    assert list(body) == [
        "gpu_memory_usage_bytes",
        "gpu_utilization",
        "cpu_usage",
        "cpu_memory_usage_bytes",
        "ephemeral_storage",
        "training_job",
        "cache",
        "per_node_metrics",
    ]
    assert list(body["per_node_metrics"][0]) == ["node_id", "metrics"]
    assert list(body["per_node_metrics"][0]["metrics"]) == list(body)[:5]
    assert list(body["ephemeral_storage"]) == ["usage_bytes", "utilization"]
    documented = [
        "id",
        "created_at",
        "current_status",
        "error_message",
        "instance_type",
        "updated_at",
        "training_project_id",
        "training_project",
        "name",
    ]
    assert [key for key in body["training_job"] if key in documented] == documented
    assert list(body["training_job"]["instance_type"]) == [
        "id",
        "name",
        "memory_limit_mib",
        "millicpu_limit",
        "gpu_count",
        "gpu_type",
        "gpu_memory_limit_mib",
    ]


def test_numbers_are_written_as_in_the_sample():
    own = view(start=NOW - 1000)
    request = call(f"{JOB_PATH}/metrics")
    match = BASETEN.find_operation(request)
    assert match is not None
    answered = answering(
        own, line("cpu.usage", [(NOW - 1000, 123.0), (NOW, 0.25)]), line("memory.usage", [(NOW, 8.6e10)])
    )
    body = drive(match.operation.answer(request, Context(NOW, REQUEST_ID, match.path)), answered).body
    assert b'"cpu_usage":[{"value":123,"timestamp":"2026-11-20T15:33:55Z"},{"value":0.25,' in body
    assert b'{"value":86000000000,"timestamp":"2026-11-20T15:33:56Z"}' in body


def test_an_absent_user_is_left_out():
    _, body = metrics(view())
    assert "user" not in body["training_job"]
    _, body = metrics(view(user="alice"))
    assert body["training_job"]["user"] == {"email": "alice"}


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("stored_status", [*STATUSES, "TRAINING_JOB_DREAMING", "", 7, None])
def test_a_stored_status_holds_as_long_as_the_state_does(state, stored_status):
    answered = find_status(Job(id="j", state=state, extra={"baseten": {"current_status": stored_status}}))
    # The vendor has no status for an unknown end, which must never appear as a success.
    assert STATUSES[answered] is (JobState.STOPPED if state is JobState.UNKNOWN else state)
    if isinstance(stored_status, str) and STATUSES.get(stored_status) is state:
        assert answered == stored_status
    else:
        assert answered == find_status(Job(id="j", state=state))


@given(
    statuses=st.lists(st.sampled_from([*STATUSES, "TRAINING_JOB_DREAMING"])),
    state=st.sampled_from(JobState),
    stored_status=st.sampled_from([*STATUSES, None, "other"]),
)
def test_a_search_by_status_finds_each_job_by_the_status_that_it_shows_once(statuses, state, stored_status):
    job = Job(id="j", state=state, extra={"baseten": {"current_status": stored_status}} if stored_status else {})

    def meets(states, conditions):
        values = [stored_status in condition.values for condition in conditions]
        fit = [found is (one.operator is Operator.IN) for found, one in zip(values, conditions, strict=True)]
        return job.state in states and all(fit)

    assert sum(meets(*one) for one in iterate_filters(statuses)) == (find_status(job) in statuses)


RANGES = st.tuples(st.integers(0, NOW + 10**10), st.integers(0, 10**10)).map(lambda pair: (pair[0], sum(pair)))


@given(span=RANGES, step=st.integers(1, 10**6), as_text=st.booleans())
def test_a_range_and_a_step_are_queried_as_they_are(span, step, as_text):
    start, end = span
    form = str if as_text else int
    body = {"start_epoch_millis": form(start), "end_epoch_millis": form(end), "step_seconds": form(step)}
    questions, _ = metrics(view(start=5), body=json.dumps(body))
    query = f"end_epoch_millis={end}&start_epoch_millis={start}&step_seconds={step}"
    by_get, _ = answer_of(call(f"{JOB_PATH}/metrics", method="GET", query=query), answering(view(start=5)))
    assert by_get[1:] == questions
    for question in questions:
        assert (question.range.start_ms, question.range.end_ms, question.step_ms) == (start, end, step * 1000)


@given(span=RANGES)
def test_without_a_step_no_series_is_longer_than_240_points(span):
    body = {"start_epoch_millis": span[0], "end_epoch_millis": span[1], "step_seconds": None}
    (question, _), _ = metrics(view(start=5), body=json.dumps(body))
    step = question.step_ms
    assert step in STEPS
    points = -(-span[1] // step) - span[0] // step
    assert points <= 240
    shorter = STEPS[STEPS.index(step) - 1] if step != STEPS[0] else 0
    assert not shorter or -(-span[1] // shorter) - span[0] // shorter > 240


def test_a_finished_job_is_reported_from_its_start_to_its_end():
    own = view(state=JobState.SUCCEEDED, start=1_000_000, end=1_090_000)
    for body in ("{}", "", "null", '{"start_epoch_millis": null, "end_epoch_millis": null, "more": 1}'):
        (question, _), _ = metrics(own, body=body)
        assert question.range.start_ms == 1_000_000
        assert 1_090_001 <= question.range.end_ms < 1_090_001 + question.step_ms


@given(start=st.integers(0, NOW * 2))
def test_a_start_alone_never_fails(start):
    for own in (view(state=JobState.SUCCEEDED, start=1_000_000, end=1_090_000), view(start=5), view()):
        (question, _), _ = metrics(own, body=json.dumps({"start_epoch_millis": start}))
        assert question.range.start_ms == start <= question.range.end_ms


@given(
    body=st.one_of(st.binary(max_size=40), st.recursive(st.none() | st.text(), st.lists, max_leaves=3).map(json.dumps))
)
@settings(max_examples=200)
def test_any_body_is_read_or_refused_as_the_caller_s_mistake(body):
    for path in ("metrics", "logs"):
        try:
            answer_of(
                call(f"{JOB_PATH}/{path}", body), lambda question: LogPage([]) if _logs(question) else _none(question)
            )
        except InvalidRequestError as error:
            answer = BASETEN.render_error(call("/"), Context(NOW, REQUEST_ID), error)
            assert answer.status == 400
            assert json.loads(answer.body)["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("body", ["{", "[]", b"\xff", "a=b"])
def test_a_body_is_ignored_where_no_parameter_is_in_it(body):
    asked, found = answer_of(call(f"{JOB_PATH}/stop", body), lambda _: view())
    assert len(asked) == 2
    assert found["training_job"]["id"] == "j"


def _logs(question):
    return isinstance(question, LogQuestion)


def _none(question):
    return answering(view())(question)


@given(
    points=st.lists(
        st.tuples(st.integers(0, 4_000_000_000).map(lambda second: second * 1000), st.floats(0, 1e15)), max_size=5
    )
)
def test_points_are_reported_as_they_are(points):
    points = sorted(dict(points).items())
    _, body = metrics(view(), line("cpu.usage", points)) if points else metrics(view())
    assert [(datetime.fromisoformat(point["timestamp"]), point["value"]) for point in body["cpu_usage"]] == [
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time), value) for time, value in points
    ]


def test_the_record_of_the_how_to_is_one():
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "truss.md").read_text(encoding="utf-8")
    found = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert found
    record = check_record(decode_record(found[1].encode()))
    assert record.extra is not None
    assert STATUSES[record.extra["baseten"]["current_status"]] is record.state


# GPU numbering and the leader.
def test_the_ranks_of_a_node_with_more_than_ten_gpus_are_in_the_order_of_the_devices():
    own = [line("gpu.utilization", [(NOW, number / 100)], device=f"gpu{number}") for number in range(12)]
    _, body = metrics(view(), *own)
    assert list(body["gpu_utilization"]) == [str(number) for number in range(12)]
    assert [points[0]["value"] for points in body["gpu_utilization"].values()] == [n / 100 for n in range(12)]


def test_ranks_do_not_depend_on_which_gpus_were_measured():
    allocations = [Allocation(replica="worker-0", node="n", device=f"gpu{number}", start=0) for number in (4, 5, 6)]
    _, body = metrics(view(allocations=allocations), line("gpu.utilization", [(NOW, 0.5)], device="gpu6"))
    assert list(body["gpu_utilization"]) == ["2"]


def test_a_replica_that_moved_goes_on_under_the_same_ranks():
    first = line("gpu.utilization", [(1000, 0.1), (2000, 0.2)], node="a", device="gpu3")
    second = line("gpu.utilization", [(2000, 0.4), (3000, 0.3)], node="b", device="gpu0")
    _, body = metrics(view(), first, second)
    assert list(body["gpu_utilization"]) == ["0"]
    assert [point["value"] for point in body["gpu_utilization"]["0"]] == pytest.approx([0.1, 0.3, 0.3])


def test_the_leader_leads_even_when_it_was_not_measured():
    own = view(replicas=[Replica(name="worker-0"), Replica(name="worker-1")])
    _, body = metrics(own, line("cpu.usage", [(NOW, 1.5)], replica="worker-1"))
    assert body["cpu_usage"] == []
    assert [node["node_id"] for node in body["per_node_metrics"]] == ["worker-1"]


@pytest.mark.parametrize(("machine", "name"), [("n1", "n1"), ("", "worker-0")])
def test_a_job_without_replicas_is_reported_by_machine(machine, name):
    _, body = metrics(view(), line("cpu.usage", [(NOW, 1.5)], replica="", node=machine))
    assert [node["node_id"] for node in body["per_node_metrics"]] == [name]
    assert body["cpu_usage"] == body["per_node_metrics"][0]["metrics"]["cpu_usage"]


# Logs.
def test_truss_loses_no_line_of_a_millisecond_that_a_page_cuts():
    """Read pages like `truss train logs`; several lines share a millisecond."""
    start = NOW * 1_000_000
    lines = [LogLine(time_ns=start + number * 300_000, text=str(number), job="j") for number in range(3500)]

    def answered(question):
        found = [one for one in lines if question.start_ns <= one.time_ns < question.end_ns]
        return LogPage(found[: question.limit])

    texts, window = [], NOW
    while True:
        body = {
            "start_epoch_millis": window,
            "end_epoch_millis": window + 7_200_000,
            "limit": 1000,
            "direction": "asc",
        }
        _, page = answer_of(call(f"{JOB_PATH}/logs", json.dumps(body)), answered)
        if not page["logs"]:
            break
        texts += [one["message"] for one in page["logs"]]
        window = int(page["logs"][-1]["timestamp"]) // 1_000_000 + 1
    assert texts == [one.text for one in lines]


def test_a_smaller_page_has_what_was_requested():
    def answered(question):
        return LogPage([LogLine(time_ns=NOW * 10**6, text=str(n), job="j") for n in range(question.limit)])

    questions, page = answer_of(call(f"{JOB_PATH}/logs", '{"limit": 7, "direction": "ASC"}'), answered)
    assert len(page["logs"]) == 7
    assert len(questions) == 1


# Errors, and requests without an owner.
@pytest.mark.parametrize("error", [one for one in ERRORS if not isinstance(one, ThrottledError)])
def test_an_error_is_a_code_and_a_message(error):
    answer = BASETEN.render_error(call("/"), Context(0, REQUEST_ID), error)
    body = json.loads(answer.body)
    assert list(body) == ["code", "message"]
    assert body["code"].isupper()
    assert body["message"]
    assert answer.content_type == "application/json"


def test_too_many_requests_are_reported_as_documented():
    answer = BASETEN.render_error(call("/"), Context(0, REQUEST_ID), ThrottledError("busy", 36_001))
    assert answer.status == 429
    assert json.loads(answer.body) == {"error": "Rate limit exceeded. Please try again later.", "retry_after": 37}
    assert dict(answer.headers) == {"Retry-After": "37"}


def test_every_operation_may_be_called_a_hundred_times_a_second():
    assert {operation.rate for operation in BASETEN.operations} == {Rate(100, 100)}


@pytest.mark.parametrize("header", ["Bearer jm_abc", "Api-Key jm_abc", "api-key jm_abc"])
def test_a_key_comes_under_either_name(header):
    (scheme,) = BASETEN.schemes
    claim = scheme.claim(Call("GET", "/v1/training_projects", "", (("authorization", header),)))
    assert claim is not None
    assert claim.value == "jm_abc"


def test_a_credential_that_does_not_hold():
    answer = BASETEN.render_error(call("/"), Context(0, REQUEST_ID), UnauthenticatedError("no", "unknown-key"))
    assert answer.status == 401
    assert json.loads(answer.body)["code"] == "AUTHENTICATION_ERROR"


def test_our_names_of_fields_become_theirs():
    answer = BASETEN.render_error(call("/"), Context(0, REQUEST_ID), InvalidRequestError("take a longer one", "step"))
    assert json.loads(answer.body)["message"] == "step_seconds: take a longer one"


def test_a_bug_reveals_nothing():
    answer = BASETEN.render_error(call("/"), Context(0, REQUEST_ID), JobmeterError("password=hunter2"))
    assert b"hunter2" not in answer.body


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/metrics", "/v1/traces", "/v2/p/training-jobs/j", "/v1/teams/t", "/v1/models"]
)
def test_other_paths_under_v1_are_left_alone(path):
    assert BASETEN.find_operation(call(path)) is None


@pytest.mark.parametrize(
    "path",
    ["/v1/training_jobs", "/v1/training/capacity", f"{JOB_PATH}/ssh/sign", "/v1/training_projects/p/jobs//metrics/x"],
)
def test_what_is_not_answered_is_reported_in_the_vendors_form(path):
    with pytest.raises(NotFoundError) as answered:
        BASETEN.find_operation(call(path))
    assert BASETEN.render_error(call(path), Context(0, REQUEST_ID), answered.value).status == 404


def test_a_percent_encoded_name_is_decoded_once():
    match = BASETEN.find_operation(call("/v1/training_projects/a%2Fb/jobs/x%20%252F/metrics", method="GET"))
    assert match is not None
    assert match.path == {"training_project_id": "a/b", "training_job_id": "x %2F"}
