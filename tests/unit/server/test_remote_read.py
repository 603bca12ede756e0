"""Tests of remote read through the whole server, without a socket."""

import pytest
from tests.support.prometheus import HEADERS_1, request_1, snappy

from jobmeter.dialects.prometheus.operations import read
from jobmeter.wire.remote_read import encode_message, encode_number

NAME = b"requests_total"


def ask(server, form, queries=2):
    """Read the samples of the last minute in a response format, several times in a request."""
    now = server.clock.now_ms()
    matcher = encode_message(2, b"__name__") + encode_message(3, NAME)
    query = encode_message(1, encode_number(1, now - 60_000) + encode_number(2, now) + encode_message(3, matcher))
    headers = {**HEADERS_1, "Authorization": f"Bearer {server.admin.token}"}
    return server.raw("POST", "/prometheus/api/v1/read", snappy(query * queries + encode_number(2, form)), headers)


@pytest.mark.parametrize(("form", "kind"), [(0, "application/x-protobuf"), (1, read._STREAMED)])
def test_an_answer_has_a_limit_over_all_queries(server, monkeypatch, form, kind):
    now = server.clock.now_ms()
    rows = [([("__name__", NAME.decode()), ("instance", "n")], [(float(at), now - 1_000 * at)]) for at in range(50)]
    headers = {**HEADERS_1, "Authorization": f"Bearer {server.admin.token}"}
    assert server.raw("POST", "/api/v1/write", snappy(request_1(rows)), headers).status == 204
    found = ask(server, form)
    assert (found.status, found.headers["content-type"]) == (200, kind)
    assert found.body.count(NAME) >= 1
    # A sample without a chunk has 18 bytes.
    monkeypatch.setattr(read, "_MOST_BYTES", len(found.body) * 3 // 4 if form else 1_500)
    assert ask(server, form, queries=1).status == 200
    assert ask(server, form).status == 422
