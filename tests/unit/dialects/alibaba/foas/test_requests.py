"""Tests of request encodings: the values of the vendor's core are read back from each of its encodings."""

import contextlib
import html
import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.foas.requests import FoasReader
from jobmeter.dialects.base import Context
from jobmeter.errors import InvalidRequestError

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=60).filter(
    lambda text: text.strip()
)


def _encoded(kind, values):
    """Encode like ``_make_http_response`` of ``aliyunsdkcore.client``, which has these three branches."""
    if kind == "application/json":
        return json.dumps(values)
    if kind == "application/xml":
        return "".join(f"<{name}>{html.escape(value, quote=False)}</{name}>" for name, value in values.items())
    return urlencode(values)


def _read(body, kind="application/x-www-form-urlencoded"):
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", "", (("content-type", kind),), body.encode())
    return FoasReader().list_values(call, Context(0, "ID"))


@given(TEXT, TEXT, st.sampled_from(["application/json", "application/xml", "application/x-www-form-urlencoded", ""]))
def test_each_encoding_gives_what_was_sent(first, second, kind):
    found = _read(_encoded(kind or "form", {"metricJson": first, "parameterJson": second}), kind)
    assert (found["metricJson"], found["parameterJson"]) == (first, second)


@pytest.mark.parametrize("kind", ["application/octet-stream", "", "text/plain"])
@pytest.mark.parametrize("body", ['{"metricJson": {"start": 1}}', '<metricJson>{"start":1}</metricJson>'])
def test_an_encoding_that_is_not_named_is_recognised(kind, body):
    assert _read(body, kind)["metricJson"] == '{"start":1}'


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", "[1]"),
        ("application/json", "metricJson=1"),
        ("application/xml", "hello"),
        ("text/xml", "<a><b></a>"),
        ("application/xml", "<a>\udcff</a>"),
    ],
)
def test_what_cannot_be_read_is_refused(kind, body):
    call = Call("POST", "/x", "", (("content-type", kind),), body.encode(errors="surrogateescape"))
    with pytest.raises(InvalidRequestError):
        FoasReader().list_values(call, Context(0, "ID"))


@given(
    st.binary(max_size=200),
    st.sampled_from(["application/json", "application/xml", "application/x-www-form-urlencoded", ""]),
)
def test_no_body_is_a_surprise(body, kind):
    call = Call("POST", "/x", "", (("content-type", kind),), body)
    with contextlib.suppress(InvalidRequestError):
        assert FoasReader().list_values(call, Context(0, "ID")).get("nothing", "") == ""
