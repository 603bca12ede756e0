import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.eflo import EFLO
from jobmeter.dialects.base import Context
from jobmeter.errors import InvalidRequestError
from jobmeter.model.log import LogLine
from jobmeter.model.task import DiagnosticTask, NewTask, TaskFilter, TaskPage
from jobmeter.query.logs import FoundLines, LogPageQuestion
from jobmeter.query.nodes import NodesQuestion, NodeStatus
from jobmeter.testing.dialect import DialectTests


class TestEflo(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return EFLO

    def decode_result(self, given, question):
        if isinstance(question, LogPageQuestion):
            return FoundLines(msgspec.convert(given["lines"], list[LogLine]), given.get("token", ""))
        if isinstance(question, TaskFilter):
            return msgspec.convert(given, TaskPage)
        if isinstance(question, NewTask):
            return msgspec.convert(given, DiagnosticTask)
        return super().decode_result(given, question)


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
    "ListClusterNodes": {
        "ClusterId": "c1",
        "ResourceGroupId": "rg",
        "OperatingStates": ["Using", "Stopped"],
        "NodeGroupId": "",
        "Tags": [],
        "MaxResults": 1,
        "NextToken": "bjE",
    },
    "DescribeNode": {"NodeId": "n1"},
}
"""Parameters of every operation, complete."""
OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    ("CreateDiagnosticTask", "DiagnosticType"): {"DiagnosticType": "NodeCheck"},
    ("ListDiagnosticResults", "DiagType"): {"DiagnosticType": "Another"},
    ("ListDiagnosticResults", "DiagnosticType"): {"DiagType": "Another"},
    ("ListClusterNodes", "NodeGroupId"): {"NodeGroupId": "ng"},
    ("ListClusterNodes", "Tags"): {"Tags": [{"Key": "team", "Value": "nlp"}]},
}
"""Parameters of a call without one parameter, or with another value if its absence alone has no effect."""
STATES = ((1, "rg", "up"), (2, "", "up"), (3, "rg", "unknown"), (4, "rg", "down"), (5, "rg", "up"))
NODES = [
    {"node": {"name": f"n{number}", "cluster": "c1", "resource_group": group, "first_seen": 0}, "state": state}
    for number, group, state in STATES
]


def objects(value):
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def in_one_text(value):
    return ",".join(value) if isinstance(value, list) else json.dumps(value) if isinstance(value, dict) else value


def numbered_members(name, members):
    """Yield the members of a list flattened like the vendor's SDKs: ``Name.1``, or ``Name.1.Key`` of an object."""
    for number, member in enumerate(members, 1):
        if isinstance(member, dict):
            yield from ((f"{name}.{number}.{key}", value) for key, value in member.items())
        else:
            yield f"{name}.{number}", member


def forms(action, values):
    """Yield every form in which a call can carry its parameters."""
    flat = {
        name: flattened
        for key, value in values.items()
        for name, flattened in (numbered_members(key, value) if objects(value) else [(key, in_one_text(value))])
    }
    numbered = {
        name: flattened
        for key, value in values.items()
        for name, flattened in (numbered_members(key, value) if isinstance(value, list) else [(key, flat[key])])
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
    """Return the first question of an operation with its answer for some nodes, or the refused field."""
    match = EFLO.find_operation(call)
    assert match is not None
    try:
        steps = match.operation.answer(call, Context(MINUTE * 1000, "id", match.path))
        question = next(steps)
    except InvalidRequestError as error:
        return error.field
    if not isinstance(question, NodesQuestion):
        return question
    with pytest.raises(StopIteration) as end:
        steps.send(msgspec.convert(NODES, list[NodeStatus]))
    return question, end.value.value.body


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
