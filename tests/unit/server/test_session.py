"""Tests of signing in to the page: the cookie, the single-use link, and everything that they do not open."""

import re

import pytest

from jobmeter.access.keys import revoke_key
from jobmeter.access.session import LIFE_MS, LINK_MS

PAGE = {"X-Jobmeter-Page": "1", "Origin": "http://127.0.0.1:8400"}
TOOK = {"X-Jobmeter-Page": "1", "Sec-Fetch-Site": "same-origin"}


def sign_in(server, authorization, **headers):
    return server.raw("POST", "/api/jobmeter/v1/session", headers={"Authorization": authorization, **headers})


def cookie_of(reply):
    assert reply.status == 200, reply.body
    return reply.headers["set-cookie"].partition(";")[0]


def code_of(server, key=None):
    return server.call("POST", "/session/link", key=key).json()["code"]


@pytest.fixture
def cookie(server):
    return cookie_of(sign_in(server, f"Bearer {server.admin.token}"))


def whoami(server, cookie, **headers):
    return server.raw("GET", "/api/jobmeter/v1/whoami", headers={"Cookie": cookie, **headers})


def test_a_key_signs_in_and_the_cookie_is_its_holder(server, cookie):
    identity = whoami(server, cookie)
    assert (identity.status, identity.json()["id"]) == (200, server.admin.id)


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(server):
    plain = sign_in(server, f"Bearer {server.admin.token}").headers["set-cookie"]
    assert re.fullmatch(r"jobmeter-session-8400=[\w-]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", plain)
    # The browser uses TLS with a proxy, as its Origin shows.
    secure = sign_in(server, f"Bearer {server.admin.token}", Origin="https://jobs.example").headers["set-cookie"]
    assert secure.startswith("__Host-jobmeter-session-8400=")
    assert secure.endswith("; Secure")
    assert sign_in(server, f"Bearer {server.admin.token}").headers["cache-control"] == "no-store"


def test_a_link_signs_in_once(server):
    code = code_of(server)
    assert whoami(server, cookie_of(sign_in(server, f"Link {code}"))).json()["id"] == server.admin.id
    again = sign_in(server, f"Link {code}")
    assert (again.status, "already used" in again.json()["error"]["message"]) == (401, True)
    assert "set-cookie" not in again.headers


def test_a_link_is_that_of_its_key(server):
    reader = server.key("reader", "team-a")
    identity = whoami(server, cookie_of(sign_in(server, f"Link {code_of(server, reader)}"))).json()
    assert (identity["id"], identity["role"], identity["project"]) == (reader.id, "reader", "team-a")


def test_links_and_sessions_end(server, cookie):
    code = code_of(server)
    server.clock.time_ms += LINK_MS
    assert "expired" in sign_in(server, f"Link {code}").json()["error"]["message"]
    server.clock.time_ms += LIFE_MS - LINK_MS
    identity = whoami(server, cookie)
    assert (identity.status, "expired" in identity.json()["error"]["message"]) == (401, True)


def test_a_revoked_key_ends_its_sessions_and_links(server):
    reader = server.key("reader")
    cookie, code = cookie_of(sign_in(server, f"Bearer {reader.token}")), code_of(server, reader)
    services = server.application.services
    revoke_key(services.registry, server.clock, reader.id, None)
    services.authenticator.forget(reader.id)
    assert whoami(server, cookie).status == 401
    assert sign_in(server, f"Link {code}").status == 401


def test_signing_out_ends_the_session_everywhere_it_was_copied_to(server, cookie):
    gone = server.raw("DELETE", "/api/jobmeter/v1/session", headers={"Cookie": cookie, **PAGE})
    assert (gone.status, "Max-Age=0" in gone.headers["set-cookie"]) == (200, True)
    assert whoami(server, cookie).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Jobmeter-Page": "1"},
        {"Origin": "http://127.0.0.1:8400"},
        {"X-Jobmeter-Page": "1", "Origin": "http://evil.example"},
        {"X-Jobmeter-Page": "1", "Origin": "http://127.0.0.1:9999"},
        {"X-Jobmeter-Page": "1", "Origin": "null"},
        {"X-Jobmeter-Page": "1", "Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8400"},
        {"X-Jobmeter-Page": "1", "Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_site_changes_nothing_by_the_cookie(server, cookie, headers):
    answer = server.raw("POST", "/api/jobmeter/v1/jobs", b'{"job_id": "j1"}', {"Cookie": cookie, **headers})
    assert (answer.status, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert server.call("GET", "/jobs").json()["total"] == 0


@pytest.mark.parametrize("headers", [PAGE, TOOK])
def test_the_page_changes_by_the_cookie_what_its_key_may(server, cookie, headers):
    made = server.raw("POST", "/api/jobmeter/v1/jobs", b'{"job_id": "j1"}', {"Cookie": cookie, **headers})
    assert made.status == 200
    reader = cookie_of(sign_in(server, f"Bearer {server.key('reader').token}"))
    refused = server.raw("POST", "/api/jobmeter/v1/jobs", b'{"job_id": "j2"}', {"Cookie": reader, **headers})
    assert refused.status == 403


@pytest.mark.parametrize("value", ["x", "a" * 1025, "é".encode().decode("latin-1"), "....", "AAAA" * 40])
def test_what_is_no_cookie_of_ours_opens_nothing(server, value):
    assert whoami(server, f"jobmeter-session-8400={value}").status == 401


def test_a_link_is_no_cookie_and_a_cookie_no_link(server, cookie):
    assert whoami(server, f"jobmeter-session-8400={code_of(server)}").status == 401
    assert sign_in(server, f"Link {cookie.partition('=')[2]}").status == 401


def test_a_cookie_makes_no_link_and_no_session(server, cookie):
    for path in ("/session", "/session/link"):
        answer = server.raw("POST", f"/api/jobmeter/v1{path}", headers={"Cookie": cookie, **PAGE})
        assert answer.status == 401


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/jobs/j1/metrics",  # PAI-DLC
        "/v2/default/training-jobs/j1/metrics/worker-0",  # ModelArts
        "/api/suggest?type=metrics",  # OpenTSDB
        "/v1/training_projects",  # Baseten
    ],
)
def test_the_vendors_routers_know_no_cookie(server, cookie, target):
    by_cookie = server.raw("GET", target, headers={"Cookie": cookie, **PAGE})
    nothing = server.raw("GET", target)
    assert by_cookie.status == nothing.status
    assert by_cookie.status in {400, 401, 403}


def test_a_token_counts_before_the_cookie(server, cookie):
    reader = server.key("reader")
    identity = whoami(server, cookie, Authorization=f"Bearer {reader.token}")
    assert identity.json()["id"] == reader.id


def test_refused_links_are_in_the_audit_and_codes_are_not(server, tmp_path):
    code = code_of(server)
    sign_in(server, f"Link {code}")
    sign_in(server, f"Link {code}")
    audit = (tmp_path / "data" / "audit.log").read_text()
    assert "replayed" in audit
    assert code not in audit
