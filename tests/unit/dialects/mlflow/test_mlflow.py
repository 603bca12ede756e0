import contextlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.stored_series import stored_result

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, RecordJobs, WriteSamples, drive
from jobmeter.dialects.mlflow import MLFLOW
from jobmeter.dialects.mlflow.metrics import read_history, read_newest, write
from jobmeter.errors import ForbiddenError, InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.batch import SampleColumns
from jobmeter.model.extra import merge_extra
from jobmeter.model.job import Job, JobPage
from jobmeter.model.series import check_series
from jobmeter.query.request import HeadQuestion
from jobmeter.query.series import FoundSeries, LastQuestion, Samples, SamplesQuestion, SeriesQuestion
from jobmeter.testing.dialect import REQUEST_ID, DialectTests
from jobmeter.wire.mlflow.filters import parse, parse_order, sort
from jobmeter.wire.mlflow.names import (
    parse_run,
)
from jobmeter.wire.mlflow.runs import Run
from jobmeter.wire.mlflow.values import SPECIAL, LoggedPoint, MetricValue, spread

NOW = 1_795_188_836_000
RUN = Run(id="r1", project="lab", job="r1", experiment="0", status="RUNNING", start=NOW)


class TestMlflow(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return MLFLOW

    def decode_result(self, given, question):
        if isinstance(question, HeadQuestion):
            given = given or {}
            return Job(id=question.ref.id, project=given.get("project", "lab"), extra=given.get("extra", {}))
        found = stored_result(given, question)
        return super().decode_result(given, question) if found is None else found


class Server:
    """Registry and store in dictionaries, in which an operation sees the writes of the earlier ones."""

    def __init__(self, project="lab", job=None, extra=""):
        self.jobs, self.samples = {}, {}
        self.project, self.job = project, job
        self.number = 0
        if extra:
            self.jobs["train-7"] = extra

    def answer(self, question):
        match question:
            case RecordJobs():
                for record in question.records.jobs:
                    self.jobs[record.job_id] = merge_extra(self.jobs.get(record.job_id), [record.extra or {}])
                return len(question.records.jobs)
            case HeadQuestion():
                if question.ref.id not in self.jobs:
                    raise NotFoundError("there is no such job", "job", question.ref.id)
                return self._job(question.ref.id)
            case WriteSamples():
                batch = question.batch
                for at, time, value in zip(batch.index, batch.time, batch.value, strict=True):
                    self.samples.setdefault(check_series(batch.series[at]), {})[int(time)] = float(value)
                return Receipt(accepted=len(batch))
            case SeriesQuestion():
                named = [one for one in self.samples if one.metric in (question.metrics or ())]
                return FoundSeries([one for one in named if one.job_key in (question.jobs or ())])
            case SamplesQuestion() | LastQuestion():
                rows = [
                    (at, time, value)
                    for at, one in enumerate(question.series)
                    for time, value in sorted(self.samples.get(one, {}).items())[
                        -1 * isinstance(question, LastQuestion) :
                    ]
                ]
                index, time, value = zip(*rows, strict=True) if rows else ((), (), ())
                return Samples(SampleColumns(as_array(index, "uint32"), as_array(time, "int64"), as_array(value, "f8")))
            case _:
                named = re.escape(question.conditions[0].field.rpartition("/")[2])
                ids = [job for job, extra in self.jobs.items() if re.search(f'"{named}":true', extra)]
                ids = [job for job in ids if not question.ids or job in question.ids]
                page = ids[question.offset : question.offset + question.limit]
                return JobPage([self._job(job) for job in page], len(ids))

    def _job(self, name):
        return Job(id=name, project=self.project, extra=json.loads(self.jobs[name]))

    def call(self, path, body=None, query=""):
        self.number += 1
        method = "GET" if body is None else "POST"
        request = Call(method, path, query, (), b"" if body is None else json.dumps(body).encode())
        match = MLFLOW.find_operation(request)
        assert match is not None
        context = Context(
            NOW + self.number,
            f"{REQUEST_ID}{self.number}",
            match.path,
            project=self.project,
            caller="lin",
            job=self.job,
        )
        answer = drive(match.operation.answer(request, context), self.answer)
        return json.loads(answer.body)

    def post(self, name, **body):
        return self.call(f"/api/2.0/mlflow/{name}", body)

    def get(self, name, query=""):
        return self.call(f"/api/2.0/mlflow/{name}", None, query)

    def start(self, **fields):
        return self.post("runs/create", experiment_id="0", **fields)["run"]["info"]["run_id"]


def as_array(values, kind):
    return np.array(values, kind)


# Values.

VALUES = st.one_of(st.floats(width=64), st.sampled_from([math.nan, math.inf, -math.inf, 0.0]))
LOGGED = st.lists(
    st.tuples(st.sampled_from(["loss", "val/loss", "step"]), VALUES, st.integers(0, 3), st.integers(-5, 10**6)),
    max_size=30,
)


@given(LOGGED)
def test_the_history_has_every_value_with_its_step(logged):
    server = Server()
    values = [MetricValue(key, value, NOW + time, step) for key, value, time, step in logged]
    drive(write(RUN, values), server.answer)
    drive(write(RUN, values), server.answer)  # a retry
    for key in ("loss", "val/loss", "step"):
        found = drive(read_history(RUN, key), server.answer)
        expected = {(step, repr(float(value)), time) for name, value, time, step in logged if name == key}
        assert sorted((point.step, repr(float(point.value))) for point in found) == sorted(
            (step, value) for step, value, _ in expected
        )
        times = [point.time for point in found]
        assert times == sorted(set(times)), "one value a millisecond"
        last = drive(read_newest((RUN,)), server.answer).get(RUN.id, {}).get(key)
        assert last == (found[-1] if found else None)


def test_values_at_one_time_keep_the_order_of_their_steps():
    points = [LoggedPoint("loss", 5, step, float(step)) for step in (3, 1, 2)]
    assert [(point.time, point.step) for point in spread(points)] == [(5, 1), (6, 2), (7, 3)]


def test_the_programs_step_is_ours_too_but_not_that_of_system_metrics():
    server = Server()
    values = [MetricValue("loss", 0.5, NOW, 7), MetricValue("system/cpu", 3.0, NOW + 1, 9)]
    drive(write(RUN, values), server.answer)
    steps = [rows for series, rows in server.samples.items() if series.metric == "app.step"]
    assert steps == [{NOW: 7.0}]


def test_a_value_that_the_server_has_no_time_for_is_an_error():
    with pytest.raises(InvalidRequestError, match="1 samples expired"):
        drive(write(RUN, [MetricValue("loss", 0.5, 1)]), lambda _: Receipt(rejected={"expired": 1}))


@pytest.mark.parametrize(
    "value",
    [
        MetricValue("", 1.0, NOW),
        MetricValue("a" * 251, 1.0, NOW),
        MetricValue("a\nb", 1.0, NOW),
        MetricValue("a%", 1.0, NOW),
        MetricValue("a", "much", NOW),
        MetricValue("a", 1.0, -1),
        MetricValue("a", 1.0, 10**15),
        MetricValue("a", 1.0, NOW, 2**54),
    ],
    ids=str,
)
def test_what_is_no_value(value):
    with pytest.raises(InvalidRequestError):
        drive(write(RUN, [value]), Server().answer)


# Runs.


def test_a_run_is_a_job_of_its_own():
    server = Server()
    run = server.start(run_name="first", tags=[{"key": "team", "value": "vision"}])
    server.post("runs/log-parameter", run_id=run, key="a/b:1", value="0.1")
    server.post("runs/set-tag", run_id=run, key="mlflow.runName", value="second")
    assert list(server.jobs) == [run]
    found = server.get("runs/get", f"run_id={run}")["run"]
    assert found["data"]["params"] == [{"key": "a/b:1", "value": "0.1"}]
    assert found["info"]["run_name"] == "second"
    assert found["info"]["user_id"] == "lin"


def test_a_run_joins_the_job_that_its_tag_names():
    server = Server(extra='{"other":{"a":1}}')
    tags = [{"key": "jobmeter.job", "value": "train-7"}, {"key": "jobmeter.replica", "value": "worker-1"}]
    run = server.start(tags=tags)
    server.post("runs/log-metric", run_id=run, key="loss", value=0.5, timestamp=NOW, step=3)
    assert list(server.jobs) == ["train-7"]
    assert json.loads(server.jobs["train-7"])["other"] == {"a": 1}
    series = next(one for one in server.samples if one.metric == "app.loss")
    assert (series.job, series.replica) == ("train-7", "worker-1")


def test_a_job_has_room_for_some_runs():
    server = Server()
    runs = [server.start(tags=[{"key": "jobmeter.job", "value": "train-7"}]) for _ in range(52)]
    assert sum(parse_run(run).joined for run in runs) == 50
    found = server.post("runs/search", experiment_ids=["0"])["runs"]
    assert {one["info"]["run_id"] for one in found} == set(runs)


@pytest.mark.parametrize("name", ["a/b", "", "x" * 129])
def test_a_tag_that_is_no_job_makes_a_job(name):
    assert not parse_run(Server().start(tags=[{"key": "jobmeter.job", "value": name}])).joined


def test_a_token_of_a_job_reaches_this_job_only():
    server = Server()
    alone = server.start()
    server.job = "train-7"
    own = server.start()
    assert parse_run(own) == ("train-7", True)
    assert server.get("runs/get", f"run_id={own}")["run"]["info"]["artifact_uri"].startswith("mlruns/")
    with pytest.raises(NotFoundError):
        server.get("runs/get", f"run_id={alone}")
    with pytest.raises(NotFoundError):
        server.post("runs/log-metric", run_id=alone, key="loss", value=1, timestamp=NOW)
    assert len(server.post("runs/search", experiment_ids=["0"])["runs"]) == 1


def test_a_token_makes_no_other_job():
    server = Server(job="-" * 128)
    with pytest.raises(InvalidRequestError, match="shorter id"):
        server.start()
    assert not server.jobs


def test_a_deleted_run_takes_nothing_and_is_found_where_it_is_wanted():
    server = Server()
    run = server.start()
    server.post("runs/delete", run_id=run)
    server.post("runs/delete", run_id=run)
    with pytest.raises(InvalidRequestError, match="deleted"):
        server.post("runs/set-tag", run_id=run, key="a", value="b")
    counts = {
        view: len(server.post("runs/search", experiment_ids=["0"], run_view_type=view)["runs"])
        for view in ("ACTIVE_ONLY", "DELETED_ONLY", "ALL")
    }
    assert counts == {"ACTIVE_ONLY": 0, "DELETED_ONLY": 1, "ALL": 1}


def test_a_parameter_stays_what_it_was():
    server = Server()
    run = server.start()
    for _ in range(2):
        server.post("runs/log-parameter", run_id=run, key="lr", value="1")
    with pytest.raises(InvalidRequestError, match="Changing param values is not allowed"):
        server.post("runs/log-batch", run_id=run, params=[{"key": "lr", "value": "2"}])


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("metrics", [{"key": "a", "value": 1, "timestamp": NOW}] * 1001),
        ("params", [{"key": "a", "value": "1"}] * 101),
        ("tags", [{"key": "a", "value": "1"}] * 101),
        ("params", [{"key": "a", "value": "1" * 6001}]),
        ("tags", [{"key": "a", "value": "1" * 8001}]),
    ],
)
def test_a_batch_has_limits(name, body):
    server = Server()
    run = server.start()
    with pytest.raises(LimitExceededError):
        server.post("runs/log-batch", run_id=run, **{name: body})


def test_pages_of_a_search_have_every_run_once():
    server = Server()
    runs = {server.start() for _ in range(7)}
    found, token = [], ""
    while True:
        page = server.post("runs/search", experiment_ids=["0", "0"], max_results=3, page_token=token)
        found += [one["info"]["run_id"] for one in page["runs"]]
        token = page.get("next_page_token", "")
        if not token:
            break
    assert len(found) == 7
    assert set(found) == runs


def test_pages_of_a_history_have_every_value_once():
    server = Server()
    run = server.start()
    server.post(
        "runs/log-batch",
        run_id=run,
        metrics=[{"key": "loss", "value": at, "timestamp": str(NOW), "step": str(at)} for at in range(5)],
    )
    query = f"run_uuid={run}&metric_key=loss&max_results=2"
    first = server.get("metrics/get-history", query)
    rest = server.get("metrics/get-history", f"{query}&page_token={first['next_page_token']}")
    last = server.get("metrics/get-history", f"{query}&page_token={rest['next_page_token']}")
    assert [one["step"] for page in (first, rest, last) for one in page["metrics"]] == [0, 1, 2, 3, 4]
    assert "next_page_token" not in last


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Missing value for required parameter 'run_id'."),
        ({"run_id": "", "run_uuid": None}, "Missing value for required parameter 'run_id'."),
        ({"run_id": [], "run_uuid": "a"}, "Invalid request: Expected `str`, got `array` - at `$.run_id`"),
        ({"run_id": 0}, "Invalid request: Expected `str`, got `int` - at `$.run_id`"),
        ({"run_uuid": False}, "Invalid request: Expected `str`, got `bool` - at `$.run_id`"),
    ],
)
def test_a_run_without_a_valid_id_is_refused_by_what_is_wrong(given, message):
    with pytest.raises(InvalidRequestError) as refused:
        Server().post("runs/delete", **given)
    assert (refused.value.message, refused.value.field) == (message, "run_id")


# Filters.


@pytest.mark.parametrize(
    "text",
    [
        "loss < 1", "foo.bar = 1", "metrics.loss", "metrics.loss <", "metrics.loss LIKE 'a'", "metrics.loss < 'a'",
        "params.lr < '1'", "params.lr = 1", "params.lr = '1' OR params.lr = '2'", "AND", "params.lr = '1' AND",
        "params.lr = '1' params.b = '2'", "attributes.status > 'a'", "attributes.start_time = 'now'", "status IN ('a')",
        "dataset.name = 'a'", "metrics.loss IS NULL", "params.a IN ('a')", "run_id IN ()", "params.'a = 'b'", "1 = 1",
        "a" * 10_001, " AND ".join(["params.a = 'b'"] * 101),
    ],
)  # fmt: skip
def test_a_filter_that_is_none(text):
    with pytest.raises(InvalidRequestError) as refused:
        parse(text)
    assert refused.value.field == "filter"


@pytest.mark.parametrize("text", ["", "metrics.loss sideways", "loss", "metrics.loss DESC, a", "DESC", "metrics."])
def test_an_order_that_is_none(text):
    with pytest.raises(InvalidRequestError):
        parse_order([text])


@settings(deadline=None)
@given(st.text("a%_", max_size=12).map(lambda text: text + "%"), st.text("ab", max_size=12))
def test_like_is_that_of_sql(pattern, text):
    (clause,) = parse(f"tags.a LIKE '{pattern}'")
    run = Run(experiment="0", status="RUNNING", start=0, tags={"a": text})
    assert clause.fits(run, {}) == _like(pattern, text)


def _like(pattern, text):
    """Match SQL's LIKE letter by letter."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_like(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in {"_", text[0]} and _like(pattern[1:], text[1:])


def test_a_hostile_pattern_takes_no_long_time():
    (clause,) = parse("tags.a LIKE '" + "%a" * 1_000 + "b'")
    run = Run(experiment="0", status="RUNNING", start=0, tags={"a": "a" * 8_000})
    assert not clause.fits(run, {})


def test_runs_without_a_value_come_last_in_either_direction():
    runs = [Run(id=str(at), experiment="0", status="RUNNING", start=at) for at in range(4)]
    metrics = {"1": {"loss": LoggedPoint("loss", 1, 1, 0.5)}, "2": {"loss": LoggedPoint("loss", 1, 1, 0.1)}}
    metrics["3"] = {"loss": LoggedPoint("loss", 1, 1, SPECIAL[0])}
    ascending, descending = (
        [run.id for run in sort(runs, parse_order([f"metrics.loss {word}"]), metrics)] for word in ("ASC", "desc")
    )
    assert ascending == ["2", "1", "3", "0"]
    assert descending == ["1", "2", "3", "0"]


# Requests.


FIELDS = st.sampled_from(["run_id", "key", "metrics", "tags", "filter", "experiment_ids", "x"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=8,
)


@given(ANY_JSON)
def test_any_json_is_answered_or_refused(body):
    for operation in MLFLOW.operations:
        if operation.method == "POST":
            request = Call("POST", operation.path, "", (), json.dumps(body).encode())
            with contextlib.suppress(InvalidRequestError, NotFoundError):
                drive(operation.answer(request, Context(NOW, REQUEST_ID, project="lab")), Server().answer)


def test_artifacts_are_refused_in_plain_words():
    request = Call("PUT", "/api/2.0/mlflow-artifacts/artifacts/r1/model.bin", "", ())
    with pytest.raises(NotFoundError) as refused:
        MLFLOW.find_operation(request)
    answer = MLFLOW.render_error(request, Context(NOW, REQUEST_ID), refused.value)
    assert answer.status == 501, "the client does not try again"
    assert b"stores no artifacts" in answer.body


def test_the_client_reads_a_refusal():
    answer = MLFLOW.render_error(Call("GET", "/x", "", ()), Context(NOW, REQUEST_ID), ForbiddenError("no"))
    assert json.loads(answer.body) == {"error_code": "PERMISSION_DENIED", "message": "no"}
