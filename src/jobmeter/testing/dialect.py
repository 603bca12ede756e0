"""Contract of dialects as tests: inherit ``DialectTests`` and provide the dialect and its golden cases.

A golden case is a JSON file, best taken word for word from the vendor's documents::

    {
      "source": "where it comes from",
      "now": "2026-11-20T15:33:56Z",
      "request": {"method": "GET", "path": "/api/...", "query": "A=1", "headers": {"x": "y"}, "body": "..."},
                                   ("base64" instead of "body" for a binary body)
      "context": {"project": "p", "caller": "key"},  the caller, if relevant
      "questions": [...],          queries of the operation, in order (``describe`` below)
      "results": [...],            their results (``decode_result`` below); by default empty ones. An entry
                                   {"raises": "NotFoundError", "arguments": ["no such job", "job", "j1"]} is an error.
      "answer": {"status": 200, "headers": {...}, "body": {...}}, or   ("base64" as above)
      "error": {"status": 400, "body": {...}}        expected answer to a refused request
    }
"""

import base64
import contextlib
import json
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from jobmeter import errors
from jobmeter.access.call import Call
from jobmeter.dialects.base import (
    Answer,
    Context,
    CreateShipper,
    DeleteJob,
    DeleteShipper,
    Dialect,
    MissingFieldError,
    Operation,
    RecordJobs,
    ShareQuestion,
    ShareToken,
    ShipperQuestion,
    Steps,
    StopJob,
    TraceToken,
    TraceTokenQuestion,
    WriteLines,
    WriteSamples,
    WriteSpans,
    drive,
)
from jobmeter.dialects.base.routes import match_path
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.alert import (
    AlertingQuestion,
    AlertingStatus,
    AlertPage,
    AlertsQuestion,
    ExpireSilence,
    PostAlerts,
    PutSilence,
    RuleGroupStatus,
    RulesQuestion,
    Silence,
    SilencesQuestion,
)
from jobmeter.model.batch import SampleBatch
from jobmeter.model.event import EventFilter, EventPage
from jobmeter.model.job import Job, JobFilter, JobPage, JobSize, JobView, Project, ProjectsQuestion, SizesQuestion
from jobmeter.model.log import LogPage
from jobmeter.model.log_tree import LogQuery
from jobmeter.model.question import Question
from jobmeter.model.shipper import Shipper
from jobmeter.model.span import Span, TracePage
from jobmeter.model.time import parse_time
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNode,
    GroupNodesQuestion,
    NodeLoad,
    NodeLoadsQuestion,
    RequestsQuestion,
    ResourceGroup,
    ResourceGroupsQuestion,
)
from jobmeter.query.nodes import NodesQuestion, NodeStatus
from jobmeter.query.request import (
    GroupRef,
    JobQuestion,
    JobRef,
    JobViewsQuestion,
    Line,
    LogQuestion,
    MetricQuery,
    MetricResult,
    NodeRef,
)

REQUEST_ID = "473469C7-AA6F-4DC5-B3DB-A3DC0DE3C83E"
_REFUSED = (
    *("missing", "unknown-key", "bad-signature", "incomplete-signature", "stale"),
    *("replayed", "revoked", "expired", "malformed"),
)
ERRORS: Sequence[JobmeterError] = (
    errors.InvalidRequestError("wrong", "step"),
    MissingFieldError("missing", "step"),
    errors.LimitExceededError("too large", "body"),
    errors.LimitExceededError("too many points", "step"),
    *(errors.UnauthenticatedError("refused", reason) for reason in _REFUSED),
    errors.ForbiddenError("refused"),
    NotFoundError("no such job", "job", "j1"),
    NotFoundError("no such path", "path"),
    NotFoundError("another method", "method", "GET"),
    errors.ConflictError("exists"),
    errors.ThrottledError("later", 1500),
    errors.UnavailableError("full"),
    errors.QueryTimeoutError("too slow"),
    errors.DamagedDataError("secret detail of a part"),
    JobmeterError("a bug: secret detail"),
)
"""Errors of every kind that a dialect must render."""


class DialectTests:
    """Contract tests.

    Inherit, name the class ``Test...``, implement ``make_dialect``, and put cases in the folder ``cases``.
    """

    cases: Path
    """Folder of the golden cases."""

    @abstractmethod
    def make_dialect(self) -> Dialect:
        """Dialect under test."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Generate a test for each golden case, named like its file."""
        if "case" in metafunc.fixturenames:
            files = sorted(self.cases.glob("*.json"))
            metafunc.parametrize("case", [json.loads(file.read_text()) for file in files], ids=[f.stem for f in files])

    def decode_result(self, given: Any, question: Question[Any]) -> Any:  # noqa: ANN401 - each question has its own result
        """Decode a result from JSON; None stands for an empty result. Extend for further questions."""
        return decode_result(given, question)

    def test_case(self, case: dict[str, Any]) -> None:
        """Golden case: the operation sends these questions, and gives this answer for their results."""
        dialect, call = self.make_dialect(), call_of(case["request"])
        context = Context(parse_time(case["now"]), REQUEST_ID, **case.get("context", {}))
        requests: list[dict[str, Any]] = []
        results = list(case.get("results", ()))

        def answer_of(question: Question[Any]) -> Any:  # noqa: ANN401
            requests.append(describe(question))
            given = results[len(requests) - 1] if len(requests) <= len(results) else None
            if isinstance(given, dict) and "raises" in given:
                raise getattr(errors, given["raises"])(*given["arguments"])
            return self.decode_result(given, question)

        try:
            match = dialect.find_operation(call)
            assert match is not None, "the call is not this dialect's"
            context = replace(context, path=match.path)
            answer = drive(match.operation.answer(call, context), answer_of)
        except JobmeterError as error:
            assert "error" in case, error.message
            _check(dialect.render_error(call, context, error), case["error"])
        else:
            assert "error" not in case, "the call was not refused"
            if "answer" in case:
                _check(answer, case["answer"])
        if "questions" in case or "error" not in case:
            assert requests == case["questions"]

    def test_there_are_cases(self) -> None:
        """Every operation has a golden case with an answer."""
        answered = set()
        for file in self.cases.glob("*.json"):
            case = json.loads(file.read_text())
            match = self.make_dialect().find_operation(call_of(case["request"])) if "answer" in case else None
            if match is not None:
                answered.add(match.operation.name)
        assert answered == {operation.name for operation in self.make_dialect().operations}

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}-{vars(error)}"[:60])
    def test_every_error_has_a_form(self, error: JobmeterError) -> None:
        """An error has a body and the right class of status; a bug or damage reveals no details."""
        call = Call("GET", "/", "", (("host", "127.0.0.1:8400"),))
        answer = self.make_dialect().render_error(call, Context(0, REQUEST_ID), error)
        assert answer.body
        if type(error) in {JobmeterError, errors.DamagedDataError}:
            assert answer.status == 500
            assert b"secret" not in answer.body
        elif isinstance(error, errors.UnavailableError | errors.QueryTimeoutError):
            assert 500 <= answer.status < 600
        else:
            assert 400 <= answer.status < 500

    def test_a_body_that_is_nested_too_deeply_is_refused_or_not_read(self) -> None:
        """Deeply nested JSON never makes the server fail."""
        headers = (("host", "127.0.0.1:8400"), ("content-type", "application/json"))
        for operation in self.make_dialect().operations:
            path = re.sub(r"{[^/]*}", "x", operation.path)
            for method in {"POST", "PUT", "PATCH"} & set(operation.method.split(", ")):
                call = Call(method, path, "", headers, body=b'{"a":' * 100_000)
                context = Context(0, REQUEST_ID, match_path(operation.path, path) or {})
                with contextlib.suppress(JobmeterError):
                    drive(operation.answer(call, context), _answer_nothing)

    def test_a_value_that_a_declaration_excludes_is_refused(self) -> None:
        """A number out of bounds, an unknown word and a bad time are refused; the error names the parameter."""
        for operation in self.make_dialect().operations:
            for parameter in operation.parameters:
                for value in parameter.invalid:
                    with pytest.raises(InvalidRequestError) as refused:
                        drive(_start_operation(operation, {parameter.name: value}), _answer_nothing)
                    # A JSON value of a wrong type may be an error of the whole body.
                    assert refused.value.field in {parameter.name, ""}, f"{operation.name}: {parameter.name}={value}"

    def test_other_calls_are_left_alone(self) -> None:
        """Calls that do not belong to the vendor are not accepted."""
        for path in ("/", "/healthz", "/api/jobmeter/v1/jobs", "/nothing/here"):
            assert self.make_dialect().find_operation(Call("GET", path, "", ())) is None

    def test_every_operation_says_what_it_is(self) -> None:
        """The reference page has a text for each operation, parameter and gap."""
        for operation in self.make_dialect().operations:
            assert operation.text
            assert all(parameter.text for parameter in operation.parameters)
            in_path = {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}
            assert in_path == {parameter.name for parameter in operation.parameters if parameter.where == "path"}
        assert all(gap.what and gap.reason for gap in self.make_dialect().gaps)


def _start_operation(operation: Operation, values: Mapping[str, str]) -> Steps:
    """Start an operation with these values, and an example of each other required parameter."""
    places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}, "header": {}}
    for parameter in operation.parameters:
        value = values.get(parameter.name, parameter.example if parameter.required else None)
        if value is not None:
            places[parameter.where][parameter.name] = value
    path = re.sub(r"{([^/]*)}", lambda name: places["path"][name[1]], operation.path)
    method = operation.method.split(", ")[0]
    body = json.dumps({name: _json_of(value) for name, value in places["body"].items()}).encode()
    headers = (("host", "127.0.0.1:8400"), ("content-type", "application/json"))
    # Some styles read the parameters of a form from the query as well.
    query = urlencode({**places["query"], **places["body"]})
    call = Call(method, path, query, headers, body=b"" if method == "GET" else body)
    return operation.answer(call, Context(0, REQUEST_ID, places["path"]))


def _json_of(text: str) -> Any:  # noqa: ANN401
    """Parse a whole number, empty list or empty object; return any other text unchanged."""
    return json.loads(text) if re.fullmatch(r"-?[0-9]+|\[\]|{}", text) else text


def _answer_nothing(question: Question[Any]) -> Any:  # noqa: ANN401
    """Answer of a server without jobs."""
    raise NotFoundError(f"there is nothing for {type(question).__name__}", "job", "x")


def call_of(request: Mapping[str, Any]) -> Call:
    """Build the raw call of a case's ``request``."""
    return Call(
        method=request.get("method", "GET"),
        raw_path=request["path"],
        query=request.get("query", ""),
        headers=tuple((name.lower(), value) for name, value in request.get("headers", {}).items()),
        body=base64.b64decode(request["base64"]) if "base64" in request else request.get("body", "").encode(),
    )


def describe(question: Any) -> dict[str, Any]:  # noqa: ANN401 - any question
    """Describe a question as plain JSON: its type and the fields that differ from their default."""
    values = {name: getattr(question, name) for name in _names(question)}
    some = {name: _to_plain(value) for name, value in values.items() if value not in _EMPTY and value is not False}
    return {"type": type(question).__name__, **some}


_EMPTY: Sequence[object] = (None, (), frozenset(), "")


def decode_result(given: Any, question: Question[Any]) -> Any:  # noqa: ANN401 - each question has its own result
    """Decode a result from JSON by the question's type; None stands for an empty result."""
    assert type(question) in _RESULTS, f"no result for {question!r}"
    return _RESULTS[type(question)](given, question)


def _make_converter(shape: Any, nothing: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401
    return lambda given, _: msgspec.convert(given or nothing, shape)


def _make_receipt(kind: str, column: str) -> Callable[[Any, Any], Receipt]:
    """Build a receipt; by default everything was stored."""
    return lambda given, question: Receipt(**(given or {kind: len(getattr(question, column))}))


def _job_view(given: Any, question: JobQuestion) -> JobView:  # noqa: ANN401
    job = {"id": question.ref.id, "project": question.ref.project or "default"}
    return msgspec.convert({"job": job, "replicas": [], "allocations": [], **(given or {})}, JobView)


def _job_views(given: Any, question: JobViewsQuestion) -> list[JobView]:  # noqa: ANN401
    named = [{"job": {"project": project, "id": job}} for project, job in question.jobs]
    views = [*(given or ()), *named[len(given or ()) :]]
    return msgspec.convert([{"replicas": [], "allocations": [], **view} for view in views], list[JobView])


def _sizes(given: Any, question: SizesQuestion) -> list[JobSize]:  # noqa: ANN401
    return msgspec.convert([*(given or ()), *({} for _ in question.jobs)][: len(question.jobs)], list[JobSize])


def _make_changed_job(given: Any, question: StopJob | DeleteJob) -> Job:  # noqa: ANN401
    return msgspec.convert(given or {"id": question.ref.id}, Job)


def _shipper(given: Any, question: CreateShipper | ShipperQuestion | DeleteShipper) -> Shipper:  # noqa: ANN401
    nobody = {"id": "ab", "project": "", "sink_project": "", "logstore": "", "created": 0}
    return msgspec.convert({**nobody, "resource_group": question.resource_group, **(given or {})}, Shipper)


def _metric_result(given: Any, question: MetricQuery) -> MetricResult:  # noqa: ANN401
    given = given or {"lines": []}
    lines = [
        Line(
            metric=line.get("metric", question.metrics[0]),
            unit=line.get("unit", ""),
            replica=line.get("replica", ""),
            node=line.get("node", ""),
            device=line.get("device", ""),
            time=np.array([time for time, _ in line["points"]], np.int64),
            value=np.array([value for _, value in line["points"]], np.float64),
            rank=line.get("rank"),
        )
        for line in given["lines"]
    ]
    return MetricResult(question, lines, project=given.get("project", "default"))


_RESULTS: Mapping[type, Callable[[Any, Any], Any]] = {
    MetricQuery: _metric_result,
    JobQuestion: _job_view,
    JobViewsQuestion: _job_views,
    JobFilter: _make_converter(JobPage, {"jobs": [], "total": 0}),
    ProjectsQuestion: _make_converter(list[Project], []),
    SizesQuestion: _sizes,
    NodesQuestion: _make_converter(list[NodeStatus], []),
    NodeLoadsQuestion: _make_converter(list[NodeLoad], []),
    GroupNodesQuestion: _make_converter(list[GroupNode], []),
    **dict.fromkeys((CapacityQuestion, RequestsQuestion), _make_converter(Amounts, {})),
    ResourceGroupsQuestion: _make_converter(list[ResourceGroup], []),
    LogQuestion: _make_converter(LogPage, {"lines": []}),
    EventFilter: _make_converter(EventPage, {"events": [], "total": 0}),
    TraceFilter: _make_converter(TracePage, {"traces": [], "total": 0}),
    SpanFilter: _make_converter(list[Span], []),
    ShareQuestion: lambda given, _: ShareToken(**(given or {"token": "token", "expires_ms": 0})),
    TraceTokenQuestion: lambda given, _: TraceToken(**given),
    RecordJobs: lambda given, question: len(question.records.jobs) if given is None else given,
    AlertsQuestion: _make_converter(AlertPage, {"alerts": []}),
    RulesQuestion: _make_converter(list[RuleGroupStatus], []),
    AlertingQuestion: _make_converter(AlertingStatus, {"receivers": [], "config": "", "started": 0}),
    SilencesQuestion: _make_converter(list[Silence], []),
    PostAlerts: _make_converter(int, 0),
    **dict.fromkeys((PutSilence, ExpireSilence), _make_converter(Silence, {})),
    **dict.fromkeys((StopJob, DeleteJob), _make_changed_job),
    **dict.fromkeys((CreateShipper, ShipperQuestion, DeleteShipper), _shipper),
    WriteSamples: _make_receipt("accepted", "batch"),
    WriteLines: _make_receipt("lines", "lines"),
    WriteSpans: _make_receipt("spans", "spans"),
}
"""Decoders of results, by the type of question."""


def _names(question: Any) -> Sequence[str]:  # noqa: ANN401
    if isinstance(question, SampleBatch):
        return ("series", "index", "time", "value")
    if isinstance(question, msgspec.Struct):
        return question.__struct_fields__
    # Fields that are not shown follow from the others.
    return [field.name for field in fields(question) if field.repr]


def _to_plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset | set):
        return sorted(_to_plain(part) for part in value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_plain(part) for part in value]
    if isinstance(value, JobRef | NodeRef | GroupRef | LogQuestion | SampleBatch | LogQuery) or hasattr(
        value, "__dataclass_fields__"
    ):
        return {name: _to_plain(getattr(value, name)) for name in _names(value) if getattr(value, name) is not None}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return msgspec.json.decode(msgspec.json.encode(value))


def _check(answer: Answer, expected: Mapping[str, Any]) -> None:
    headers = {name.lower(): value for name, value in answer.headers}
    found = {name: headers.get(name) for name in expected.get("headers", {})}
    assert found == expected.get("headers", {})
    body = base64.b64decode(expected["base64"]) if "base64" in expected else expected["body"]
    assert answer.body or answer.status == 204 or body == b""  # an empty message is a message
    if isinstance(body, bytes):
        assert answer.body == body
    elif isinstance(body, str):
        assert answer.body.decode() == body
    else:
        _check_numbers(json.loads(answer.body, parse_constant=_refuse_constant))
        assert json.loads(answer.body) == body
    assert answer.status == expected["status"]


def _refuse_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def _check_numbers(value: Any) -> None:  # noqa: ANN401
    if isinstance(value, float):
        assert math.isfinite(value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_numbers(part)
