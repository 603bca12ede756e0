"""Tests of the rate limits of the page "PAI monitoring", through the whole server with a clock that is set."""

import pytest

from jobmeter.access.limit import Per
from jobmeter.dialects.registry import list_dialects

CALLS = {
    "GetUserViewMetrics": ("GET", "PaiStudio/2022-01-12", "ResourceGroupID=rg&PageNumber=1&PageSize=10"),
    "CreateDiagnosticTask": ("POST", "eflo-controller/2022-12-15", ""),
    "ListDiagnosticResults": ("POST", "eflo-controller/2022-12-15", ""),
    "DescribeDiagnosticResult": ("POST", "eflo-controller/2022-12-15", ""),
    "DeleteResourceLog": ("DELETE", "eas/2021-07-01", "ClusterId=c&ResourceId=r"),
    "DescribeResourceLog": ("GET", "eas/2021-07-01", "ClusterId=c&ResourceId=r"),
}
"""Operations in the URL form: failed calls count as well."""
RATES = {one.name: one.rate for dialect in list_dialects() for one in dialect.operations if one.name in CALLS}


def call(server, name, key):
    method, product, query = CALLS[name]
    headers = {"Authorization": f"Bearer {key.token}", "Content-Type": "application/json"}
    body = b"{}" if method == "POST" else b""
    return server.raw(method, f"/api/{product}/{name}{'?' if query else ''}{query}", body, headers)


@pytest.mark.parametrize("name", CALLS)
def test_one_call_too_many_is_throttled_and_learns_when_to_come_back(server, name):
    rate = RATES[name]
    assert rate is not None
    own, neighbour, stranger = server.key("admin", "p1"), server.key("admin", "p1"), server.key("admin", "p2")
    found = {call(server, name, own).status for _ in range(int(rate.burst))}
    assert 429 not in found
    refused = call(server, name, own)
    assert (refused.status, refused.json()["Code"]) == (429, "Throttling")
    assert (refused.headers["retry-after"], refused.headers["x-acs-retry-after"]) == (
        "1", str(-(-1000 // int(rate.per_second))),
    )  # fmt: skip
    assert (call(server, name, neighbour).status == 429) == (rate.per is Per.ACCOUNT)
    assert call(server, name, stranger).status != 429
    server.clock.time_ms += 1000
    assert call(server, name, own).status != 429


def test_what_the_page_does_not_limit_is_not_limited(server):
    key = server.key("writer", "p1")
    headers = {"Authorization": f"Bearer {key.token}", "Host": "h"}
    path = "/api/PaiLLMTrace/2024-03-11/GetXtraceToken"
    assert {server.raw("GET", path, headers=headers).status for _ in range(250)} == {200}
