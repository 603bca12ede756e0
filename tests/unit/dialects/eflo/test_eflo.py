import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context
from jobmeter.dialects.eflo import EFLO
from jobmeter.errors import InvalidRequestError
from jobmeter.model.log import LogLine
from jobmeter.model.task import DiagnosticTask, NewTask, TaskFilter, TaskPage
from jobmeter.query.log_pages import FoundLines, LogSearch
from jobmeter.testing.dialect import DialectTests


class TestEflo(DialectTests):
    cases = Path(__file__).parent / "cases"

    def dialect(self):
        return EFLO

    def result_of(self, given, question):
        if isinstance(question, LogSearch):
            return FoundLines(msgspec.convert(given["lines"], list[LogLine]), given.get("token", ""))
        if isinstance(question, TaskFilter):
            return msgspec.convert(given, TaskPage)
        if isinstance(question, NewTask):
            return msgspec.convert(given, DiagnosticTask)
        return super().result_of(given, question)


MINUTE = 1_687_363_200
CALLS: dict[str, dict[str, Any]] = {
    "CreateDiagnosticTask": {
        "ClusterId": "c1",
        "NodeIds": ["n1", "n2"],
        "DiagnosticType": "CheckByAiJobLogs",
        "AiJobLogInfo": {"AiJobLogs": [{"NodeId": "n1", "AiInstance": "w", "Logs": [{"LogContent": "a b"}]}]},
        "StartTime": str(MINUTE),
        "EndTime": str(MINUTE + 60),
    },
    "ListDiagnosticResults": {
        "DiagType": "NodeCheck",
        "DiagnosticType": "NodeCheck",
        "DiagnosticId": "diag-1",
        "ClusterId": "c1",
        "NodeIds": ["n1", "n2"],
        "ResourceGroupId": "rg",
        "MaxResults": 50,
        "NextToken": "diag-2",
    },
    "DescribeDiagnosticResult": {"DiagnosticId": "diag-1"},
    "ListSyslogs": {
        "FromTime": str(MINUTE),
        "ToTime": str(MINUTE + 60),
        "NodeId": "n1",
        "Query": 'Xid: 79 OR "a+b"',
        "Reverse": True,
        "NextToken": "t/+=",
    },
}
"""Every parameter of every operation."""
OTHERS = {
    ("CreateDiagnosticTask", "DiagnosticType"): {"DiagnosticType": "NodeCheck"},
    ("ListDiagnosticResults", "DiagType"): {"DiagnosticType": "Another"},
    ("ListDiagnosticResults", "DiagnosticType"): {"DiagType": "Another"},
}
"""Further parameters of a call without one, where its absence alone means the same."""


def forms(action, values):
    """The ways in which a call can have its parameters."""
    flat = {
        name: ",".join(value) if isinstance(value, list) else json.dumps(value) if isinstance(value, dict) else value
        for name, value in values.items()
    }
    numbered = {
        **{name: value for name, value in flat.items() if not isinstance(values[name], list)},
        **{
            f"{name}.{number}": one
            for name, value in values.items()
            if isinstance(value, list)
            for number, one in enumerate(value, 1)
        },
    }
    sdk = (("x-acs-version", EFLO.version), ("x-acs-action", action))
    form = (*sdk, ("content-type", "application/x-www-form-urlencoded"))
    named = {"Action": action, "Version": EFLO.version}
    url = f"/api/eflo-controller/{EFLO.version}/{action}"
    yield "form body", Call("POST", "/", "", form, urlencode(flat).encode())
    yield "numbered lists", Call("POST", "/", "", form, urlencode(numbered).encode())
    yield "query", Call("POST", "/", urlencode(flat), sdk)
    yield "query alone", Call("GET", "/", urlencode({**named, **flat}), ())
    yield "URL form, JSON", Call("POST", url, "", (("content-type", "application/json"),), json.dumps(values).encode())
    yield "URL form, query", Call("GET", url, urlencode(flat), ())


def asked(call):
    """What the operation asks first, or the field that it refuses."""
    match = EFLO.match(call)
    assert match is not None
    try:
        return next(match.operation.answer(call, Context(MINUTE * 1000, "id", match.path)))
    except InvalidRequestError as error:
        return error.field


@pytest.mark.parametrize("action", CALLS)
def test_a_parameter_counts_wherever_a_call_has_it(action):
    whole = {form: asked(call) for form, call in forms(action, CALLS[action])}
    assert len(set(map(repr, whole.values()))) == 1, whole
    for left_out in CALLS[action]:
        fewer = {name: value for name, value in CALLS[action].items() if name != left_out}
        fewer.update(OTHERS.get((action, left_out), {}))
        less = {form: asked(call) for form, call in forms(action, fewer)}
        assert len(set(map(repr, less.values()))) == 1, (left_out, less)
        assert repr(less["query"]) != repr(whole["query"]), f"{left_out} changes nothing"


def test_every_operation_with_parameters_is_among_those_calls():
    documented = {one.name: {parameter.name for parameter in one.parameters} for one in EFLO.operations}
    assert {name: set(values) for name, values in CALLS.items()} == documented
