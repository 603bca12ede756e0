"""Parameters that no JSON reader should trip over: nested without end, or not UTF-8."""

from typing import Any

import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.cloudmonitor import dimensions
from jobmeter.dialects.alibaba.operation import Arguments
from jobmeter.dialects.base import Context
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
