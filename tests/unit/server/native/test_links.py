"""Tests of links that open the page of one job: the operations that they open or refuse, and their end."""

import pytest
from tests.support.fakes import NOW
from tests.support.frames import records, samples

from jobmeter.access.decide import ACTIONS, LINKED, authorize
from jobmeter.access.links import MOST_LINKS
from jobmeter.access.principal import Principal, Role
from jobmeter.errors import ForbiddenError
from jobmeter.model.time import DAY, HOUR
from jobmeter.server.native.router import BASE, ENDPOINTS

JOBS = [
    {"job_id": name, "command": f"train {name}", "start": NOW - HOUR, "replicas": [{"name": "w", "node": "n1"}]}
    for name in ("mine", "closed")
]
EVENTS = [{"time": NOW - 5, "job": name, "reason": "Hello", "message": name} for name in ("mine", "closed")]


@pytest.fixture
def server_with_jobs(server):
    lines = [
        ({"metric": "cpu.usage", "job": name, "replica": "w", "node": "n1"}, [(NOW, 2)]) for name in ("mine", "closed")
    ]
    server.ingest(records({"jobs": JOBS, "events": EVENTS, "nodes": [{"name": "n1"}]}) + samples(lines))
    for name in ("mine", "closed"):
        body = {"lines": [{"text": f"line of {name}", "time": NOW}]}
        assert server.call("POST", f"/jobs/{name}/logs", body).status == 200
    return server


@pytest.fixture
def made(server_with_jobs):
    return server_with_jobs.call("POST", "/jobs/mine/links", {"expires_in": 3600}).json()


def get(server, path, token):
    return server.raw("GET", f"{BASE}{path}", headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize(
    "path",
    [
        "", "/metrics?metric=cpu.usage", "/metrics/names", "/latest", "/findings", "/timeline", "/events", "/logs",
    ],
)  # fmt: skip
def test_a_link_opens_the_job_and_no_other(server_with_jobs, made, path):
    opened = get(server_with_jobs, f"/jobs/mine{path}", made["token"])
    expected = server_with_jobs.call("GET", f"/jobs/mine{path}")
    assert (opened.status, expected.status) == (200, 200)
    assert b"closed" not in opened.body
    refused = get(server_with_jobs, f"/jobs/closed{path}", made["token"])
    assert refused.status == 404


def test_its_holder_sees_the_record_but_no_list_no_node_and_no_link(server_with_jobs, made):
    token = made["token"]
    assert get(server_with_jobs, "/jobs/mine", token).json()["job"]["command"] == "train mine"
    assert get(server_with_jobs, "/jobs", token).json() == {"jobs": [], "total": 0}
    whole = get(server_with_jobs, "/events", token).json()["events"]
    assert {event["job"] for event in whole} == {"mine"}
    for path in ("/nodes", "/jobs/mine/links", "/keys", "/usage", "/status", "/nodes/n1/metrics?metric=node.load1"):
        assert get(server_with_jobs, path, token).status == 403, path
    assert server_with_jobs.raw(
        "DELETE", f"{BASE}/jobs/mine", headers={"Authorization": f"Bearer {token}"}
    ).status == 403  # fmt: skip


def test_no_endpoint_that_changes_something_is_open_to_it():
    holder = Principal(id="l", name="l", role=Role.READER, project="default", job="mine", access_key_id="JMLK1")
    for endpoint in ENDPOINTS:
        if endpoint.action is None or endpoint.action in LINKED:
            continue
        with pytest.raises(ForbiddenError):
            authorize(holder, endpoint.action)
    assert {action for action in LINKED if ACTIONS[action] is not Role.READER} == set()
    scope = authorize(holder, "jobs:read")
    assert (scope.projects, scope.job, scope.record) == (frozenset({"default"}), "mine", True)


def test_it_says_which_job_and_until_when(server_with_jobs, made):
    identity = get(server_with_jobs, "/whoami", made["token"]).json()
    assert (identity["job"], identity["expires"], identity["role"], identity["project"]) == (
        "mine",
        made["expires"],
        "reader",
        "default",
    )
    own = server_with_jobs.call("GET", "/whoami").json()
    assert (own["job"], own["expires"]) == (None, None)


def test_it_ends_by_itself(server_with_jobs, made):
    assert made["expires"] == made["created"] + HOUR
    server_with_jobs.clock.time_ms += HOUR - 1
    assert get(server_with_jobs, "/jobs/mine", made["token"]).status == 200
    server_with_jobs.clock.time_ms += 1
    refused = get(server_with_jobs, "/jobs/mine", made["token"])
    assert (refused.status, refused.json()["error"]["message"]) == (401, "the link has expired")
    assert server_with_jobs.call("GET", "/jobs/mine/links").json() == {"links": []}


def test_it_is_ended_at_once_and_a_session_with_it(server_with_jobs, made):
    signed = server_with_jobs.raw("POST", f"{BASE}/session", headers={"Authorization": f"Bearer {made['token']}"})
    cookie = {"Cookie": signed.headers["set-cookie"].partition(";")[0]}
    assert server_with_jobs.raw("GET", f"{BASE}/jobs/mine", headers=cookie).status == 200
    assert server_with_jobs.call("DELETE", f"/jobs/mine/links/{made['id']}").json() == {"deleted": True}
    assert server_with_jobs.raw("GET", f"{BASE}/jobs/mine", headers=cookie).status == 401
    refused = get(server_with_jobs, "/jobs/mine", made["token"])
    assert (refused.status, refused.json()["error"]["message"]) == (401, "the link was revoked")
    again = server_with_jobs.call("DELETE", f"/jobs/mine/links/{made['id']}")
    assert (again.status, "no valid link" in again.json()["error"]["message"]) == (404, True)


def test_links_are_listed_newest_first_and_can_be_copied_again(server_with_jobs, made):
    server_with_jobs.clock.time_ms += 1000
    other = server_with_jobs.call("POST", "/jobs/mine/links").json()
    assert other["expires"] == other["created"] + 7 * DAY
    listed = server_with_jobs.call("GET", "/jobs/mine/links").json()["links"]
    assert [one["token"] for one in listed] == [other["token"], made["token"]]
    assert server_with_jobs.call("GET", "/jobs/closed/links").json() == {"links": []}
    assert [key["id"] for key in server_with_jobs.call("GET", "/keys").json()["keys"] if "link" in key["id"]] == []


def test_a_link_of_one_job_is_not_ended_by_way_of_another(server_with_jobs, made):
    assert server_with_jobs.call("DELETE", f"/jobs/closed/links/{made['id']}").status == 404
    assert get(server_with_jobs, "/jobs/mine", made["token"]).status == 200


@pytest.mark.parametrize(
    ("body", "field"), [({"expires_in": 0}, "expires_in"), ({"for": 1}, ""), ({"expires_in": 10**9}, "expires_in")]
)
def test_a_length_that_is_none_is_refused(server_with_jobs, body, field):
    refused = server_with_jobs.call("POST", "/jobs/mine/links", body)
    assert refused.status == 400
    assert field in refused.json()["error"]["message"]


def test_there_are_only_so_many(server_with_jobs):
    for _ in range(MOST_LINKS):
        assert server_with_jobs.call("POST", "/jobs/mine/links", {"expires_in": 60}).status == 200
    refused = server_with_jobs.call("POST", "/jobs/mine/links")
    assert (refused.status, "revoke some of them" in refused.json()["error"]["message"]) == (400, True)
    server_with_jobs.clock.time_ms += 60_000
    assert server_with_jobs.call("POST", "/jobs/mine/links").status == 200
    assert len(server_with_jobs.application.services.registry.keys.list_links("default", "mine")) == 1


def test_readers_make_none_and_see_none(server_with_jobs, made):
    reader = server_with_jobs.key("reader", "default")
    for method, path in (("POST", ""), ("GET", ""), ("DELETE", f"/{made['id']}")):
        assert server_with_jobs.call(method, f"/jobs/mine/links{path}", key=reader).status == 403
    elsewhere = server_with_jobs.key("writer", "team-b")
    assert server_with_jobs.call("POST", "/jobs/mine/links", key=elsewhere).status == 404


def test_another_job_of_the_same_id_is_not_opened(server_with_jobs, made):
    assert server_with_jobs.call("DELETE", "/jobs/mine").status == 200
    server_with_jobs.call("POST", "/jobs", {"job_id": "mine", "state": "Queued"})
    assert get(server_with_jobs, "/jobs/mine", made["token"]).status == 401


def test_the_link_signs_nothing(server_with_jobs, made):
    (key,) = server_with_jobs.application.services.registry.keys.list_links("default", "mine")
    assert key.access_key_id.startswith("JMLK")
    assert made["token"].encode() not in key.sealed_secret
