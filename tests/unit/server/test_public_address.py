"""Tests of every place where an answer has an address of the server: behind a proxy it is the proxy's."""

import pytest
from tests.support.frames import records
from tests.support.serving import serving

PROXIED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "meter.example", "X-Forwarded-For": "203.0.113.9"}


def bearer(server):
    return {"Authorization": f"Bearer {server.admin.token}"}


def endpoints(server, **headers):
    path = "/api/PaiLLMTrace/2024-03-11/GetXtraceToken"
    return server.raw("GET", path, headers={**bearer(server), **headers}).json()


def log_url(server, **headers):
    server.call("POST", "/ingest", b"")
    server.ingest(records({"jobs": [{"job_id": "j1", "state": "Running", "replicas": [{"name": "worker-0"}]}]}))
    path = "/v2/default/training-jobs/j1/tasks/worker-0/logs/url"
    return server.raw("GET", path, headers={"X-Auth-Token": server.admin.token, **headers}).json()["obs_url"]


ADDRESSES = [
    ({}, {}, "http://127.0.0.1:8400"),
    ({}, PROXIED, "http://127.0.0.1:8400"),
    ({"trusted_proxies": "10.0.0.0/8"}, PROXIED, "http://127.0.0.1:8400"),
    ({"trusted_proxies": "127.0.0.0/8"}, PROXIED, "https://meter.example"),
    ({"public_url": "https://given.example/base/"}, {}, "https://given.example/base"),
    ({"public_url": "https://given.example", "trusted_proxies": "127.0.0.1"}, PROXIED, "https://given.example"),
]


@pytest.mark.parametrize(("settings", "headers", "address"), ADDRESSES)
def test_trace_endpoints_and_links_begin_with_the_public_address(tmp_path, settings, headers, address):
    server = serving(tmp_path / "data", **settings)
    found = endpoints(server, **headers)
    assert {found["HttpEndpoint"], found["HttpInternalEndpoint"]} == {f"{address}/api/otlp/traces"}
    assert log_url(server, **headers).startswith(f"{address}/api/jobmeter/v1/jobs/j1/logs?")
    server.application.close()


@pytest.mark.parametrize("host", ["http://127.0.0.1:8400", "http://127.0.0.1:8400/", "127.0.0.1:8400"])
def test_an_endpoint_with_a_scheme_or_a_slash_is_answered(tmp_path, host):
    server = serving(tmp_path / "data")
    assert endpoints(server, Host=host)["HttpEndpoint"] == "http://127.0.0.1:8400/api/otlp/traces"
    server.application.close()


def test_links_say_the_address_that_the_settings_name(tmp_path):
    for public_url in ("", "https://given.example"):
        server = serving(tmp_path / f"data{len(public_url)}", public_url=public_url)
        server.ingest(records({"jobs": [{"job_id": "j1", "state": "Running"}]}))
        made = server.call("POST", "/jobs/j1/links").json()
        (listed,) = server.call("GET", "/jobs/j1/links").json()["links"]
        session = server.call("POST", "/session/link").json()
        assert [one["public_url"] for one in (made, listed, session)] == [public_url] * 3
        server.application.close()


def test_a_session_through_tls_has_a_secure_cookie(tmp_path):
    server = serving(tmp_path / "data", trusted_proxies="127.0.0.1")
    plain = server.call("POST", "/session").headers["set-cookie"]
    proxied = server.call("POST", "/session", headers=PROXIED).headers["set-cookie"]
    assert ("Secure" in plain, "Secure" in proxied) == (False, True)
    assert proxied.startswith("__Host-jobmeter-session=")
    server.application.close()


def test_a_change_by_a_session_through_a_proxy_that_replaces_host(tmp_path):
    """The browser names the proxy in Origin; the proxy calls the server by another name."""
    server = serving(tmp_path / "data", trusted_proxies="127.0.0.1")
    server.ingest(records({"jobs": [{"job_id": "j1", "state": "Running"}]}))
    cookie = server.call("POST", "/session", headers=PROXIED).headers["set-cookie"].partition(";")[0]
    browser = {**PROXIED, "Cookie": cookie, "X-Jobmeter-Page": "1", "Origin": "https://meter.example"}
    path = "/api/jobmeter/v1/jobs/j1/links"
    assert server.raw("POST", path, headers=browser).status == 200
    assert server.raw("POST", path, headers={**browser, "Origin": "https://evil.example"}).status == 401
    server.application.close()
