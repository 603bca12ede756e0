"""Tests of parameters that break JSON readers: deeply nested ones, and invalid UTF-8."""

from typing import Annotated, Any

import pytest
from msgspec import field

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.cloudmonitor import dimensions
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, Labels, answer, json_operation, operation
from jobmeter.dialects.base import Context, Parameter, Steps, drive
from jobmeter.errors import InvalidRequestError

ROA, URL_FORM = "/api/v1/jobs", "/api/pai-dlc/2020-12-03/CreateJob"
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


@json_operation("POST /api/v1/jobs", "jobs:write")
class StoreLabels(AlibabaRequest, frozen=True, kw_only=True):
    """Stores labels."""

    a: Annotated[Any, "Anything."] = None


@operation("GET /api/v1/jobs", "jobs:read")
class FindLabels(AlibabaRequest, frozen=True, kw_only=True):
    """Finds labels."""

    tags: Labels = field(default_factory=dict)


@pytest.mark.parametrize("body", [DEEP.encode(), b'{"a": "\xff"}'])
@pytest.mark.parametrize("path", [ROA, URL_FORM])
def test_a_body_that_cannot_be_read_is_a_wrong_one(path: str, body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        StoreLabels.operations[0].answer(Call("POST", path, "", (), body), Context(0, "id"))


def test_a_map_nested_without_end_is_a_wrong_one() -> None:
    with pytest.raises(InvalidRequestError, match="Tags"):
        FindLabels.operations[0].answer(Call("GET", ROA, f"Tags={DEEP}", ()), Context(0, "id"))


def test_dimensions_nested_without_end_are_wrong_ones() -> None:
    with pytest.raises(InvalidRequestError, match="Dimensions"):
        dimensions.read(DEEP)


def test_an_operation_has_the_name_the_text_and_the_answer_of_its_request() -> None:
    @operation("GET /jobs/{JobId}", "jobs:read")
    class ShowState(AlibabaRequest, frozen=True, kw_only=True):
        """The lines: `{State}`.

        In the order in which
        they came.
        """

        state: Annotated[str, "Its state."]
        job_id: Annotated[str, "The job."]

        def _steps(self) -> Steps:
            yield from ()
            return answer({"State": self.state}, self)

    (made,) = ShowState.operations
    assert (made.name, made.method, made.path) == ("ShowState", "GET", "/jobs/{JobId}")
    assert made.text == "The lines: `{State}`. In the order in which they came."
    job, state = Parameter("JobId", "path", "The job.", True), Parameter("State", "query", "Its state.", True)
    assert made.parameters == (job, state)
    steps = made.answer(Call("GET", "/jobs/j", "State=up", ()), Context(0, "id", {"JobId": "j"}))
    assert drive(steps, lambda question: question).body == b'{"State":"up","RequestId":"id"}'
