"""Tests of the example's signatures with the server's own check, which was written independently."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.signatures.acs3 import Acs3
from jobmeter.examples.acs3 import KeyPair, sign
from jobmeter.model.time import SystemClock

KEY = KeyPair("JM1", "s3cret")
OPERATION = ("2020-12-03", "GetJobMetrics")


def call(path, parameters, headers):
    pairs = tuple((name.lower(), value) for name, value in headers.items())
    return Call("GET", path, urlencode(parameters), pairs)


@given(st.dictionaries(st.sampled_from(["MetricType", "StartTime", "Token"]), st.text(max_size=12)))
def test_the_server_believes_them(parameters):
    headers = sign("GET", "127.0.0.1:1", "/api/v1/jobs/a%20b/metrics", parameters, OPERATION, KEY, SystemClock())
    asked = call("/api/v1/jobs/a%20b/metrics", parameters, headers)
    claim = Acs3().claim(asked)
    assert claim is not None
    assert claim.value == "JM1"
    assert Acs3().verify(asked, "s3cret")
    assert not Acs3().verify(asked, "another")


@pytest.mark.parametrize("changed", ["x-acs-action", "x-acs-date", "host"])
def test_a_changed_header_is_noticed(changed):
    headers = sign("GET", "127.0.0.1:1", "/p", {"a": "b"}, OPERATION, KEY, SystemClock())
    headers[changed] += "1"
    assert not Acs3().verify(call("/p", {"a": "b"}, headers), "s3cret")


def test_no_nonce_comes_twice():
    nonces = {sign("GET", "h", "/", {}, OPERATION, KEY, SystemClock())["x-acs-signature-nonce"] for _ in range(50)}
    assert len(nonces) == 50
