"""Parameters that no JSON reader should trip over: nested without end, or not UTF-8."""

from typing import Any

import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.cloudmonitor import dimensions
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_path, in_query, operation
from jobmeter.dialects.base import Context, Steps, drive
from jobmeter.errors import InvalidRequestError

ROA, URL_FORM = "/api/v1/jobs", "/api/pai-dlc/2020-12-03/CreateJob"
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def _arguments(path: str, query: str = "", body: bytes = b"") -> Arguments:
    return Arguments(Call("POST", path, query, (), body), Context(0, "id"))


@pytest.mark.parametrize("body", [DEEP.encode(), b'{"a": "\xff"}'])
def test_a_body_that_cannot_be_read_is_a_wrong_one(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        _arguments(ROA, body=body).body(dict[str, Any])
    with pytest.raises(InvalidRequestError):
        _arguments(URL_FORM, body=body)


def test_a_map_nested_without_end_is_a_wrong_one() -> None:
    with pytest.raises(InvalidRequestError, match="Tags"):
        _arguments(ROA, f"Tags={DEEP}").mapping("Tags")


def test_dimensions_nested_without_end_are_wrong_ones() -> None:
    with pytest.raises(InvalidRequestError, match="Dimensions"):
        dimensions.read(DEEP)


def test_an_operation_has_the_name_the_text_and_the_answer_of_its_function() -> None:
    job, state = in_path("JobId", "The job."), in_query("State", "Its state.")

    @operation("GET /jobs/{JobId}", "jobs:read", job, state)
    def get_pod_logs(arguments: Arguments) -> Steps:
        """The lines: `{State}`.

        In the order in which
        they came.
        """
        yield from ()
        return answer({"State": arguments.required("State")}, arguments)

    assert (get_pod_logs.name, get_pod_logs.method, get_pod_logs.path) == ("GetPodLogs", "GET", "/jobs/{JobId}")
    assert get_pod_logs.text == "The lines: `{State}`. In the order in which they came."
    assert get_pod_logs.parameters == (job, state)
    steps = get_pod_logs.answer(Call("GET", "/jobs/j", "State=up", ()), Context(0, "id"))
    assert drive(steps, lambda question: question).body == b'{"State":"up","RequestId":"id"}'
