"""Tests of policies over the whole application: permitted and refused calls, and no other information."""

import json
from typing import Any

import pytest
from tests.support.serving import Serving

from jobmeter.access.call import Call
from jobmeter.access.decide import authorize
from jobmeter.access.keys import CreatedKey, create_key
from jobmeter.access.policy import encode_policies
from jobmeter.access.signatures import BEARER
from jobmeter.model.job import SizesQuestion

GROUP = "/api/PaiStudio/2022-01-12/GetUserViewMetrics?PageNumber=1&PageSize=10&ResourceGroupID="


def key(server: Serving, *statements: dict[str, Any], project: str | None = None) -> CreatedKey:
    services = server.application.services
    document = {"Version": "1", "Statement": list(statements)}
    text = encode_policies([("own", json.dumps(document).encode())])
    return create_key(services.registry, services.vault, server.clock, "own", "admin", project, text)


def allow(action: str, resource: str = "*", effect: str = "Allow") -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource}


@pytest.fixture
def filled(server: Serving) -> Serving:
    """Return a server with four jobs in two groups, workspaces, clusters and projects, each job on one node."""
    for project in ("p", "q"):
        records = [
            {
                "job_id": f"{project}{number}",
                "project": project,
                "state": "Running",
                "resource_group": f"g{number}",
                "workspace": f"w{number}",
                "replicas": [{"name": "worker-0", "node": f"n{number}", "cluster": f"c{number}"}],
            }
            for number in (1, 2)
        ]
        assert server.call("POST", "/jobs", {"jobs": records}).status == 200
    return server


def visible_jobs(server: Serving, who: CreatedKey) -> set[str]:
    """Return the jobs that a key lists, which must be the jobs that it may query."""
    listed = server.call("GET", "/jobs", key=who).json()
    found = {job["id"] for job in listed["jobs"]}
    assert listed["total"] == len(found)
    for name in ("p1", "p2", "q1", "q2"):
        reply = server.call("GET", f"/jobs/{name}", key=who)
        metrics = server.call("GET", f"/jobs/{name}/metrics?metric=cpu.usage", key=who)
        events = server.call("GET", f"/jobs/{name}/events", key=who)
        logs = server.call("GET", f"/jobs/{name}/logs", key=who)
        statuses = [one.status for one in (reply, metrics, events, logs)]
        assert statuses == ([200] * 4 if name in found else [404] * 4), (name, statuses)
        if name not in found:
            nobody = server.call("GET", "/jobs/xx", key=who).json()["error"]
            assert reply.json()["error"] == {**nobody, "message": nobody["message"].replace("xx", name)}
    return found


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("*", {"p1", "p2", "q1", "q2"}),
        ("acs:*:*:p:*", {"p1", "p2"}),
        ("acs:*:*:*:project/q", {"q1", "q2"}),
        ("acs:*:*:*:resourcegroup/g1", {"p1", "q1"}),
        ("acs:*:*:p:resourcegroup/g1", {"p1"}),
        ("acs:*:*:*:workspace/w2", {"p2", "q2"}),
        ("acs:*:*:*:cluster/c2", {"p2", "q2"}),
        ("acs:*:*:*:job/p?", {"p1", "p2"}),
        ("acs:*:*:*:workspace/none", set()),
    ],
)
def test_a_key_sees_what_its_policy_allows(filled: Serving, resource: str, expected: set[str]) -> None:
    assert visible_jobs(filled, key(filled, allow("jobmeter:*", resource))) == expected
    narrowed = key(filled, allow("jobmeter:*"), allow("*", resource, "Deny"))
    if resource == "*":
        assert filled.call("GET", "/jobs", key=narrowed).status == 403
    else:
        assert visible_jobs(filled, narrowed) == {"p1", "p2", "q1", "q2"} - expected


def test_pages_of_a_narrowed_listing_count_what_is_shown(filled: Serving) -> None:
    who = key(filled, allow("*", "acs:*:*:*:resourcegroup/g1"))
    pages = [filled.call("GET", f"/jobs?limit=1&offset={at}", key=who).json() for at in range(3)]
    assert [page["total"] for page in pages] == [2, 2, 2]
    assert sorted(job["id"] for page in pages for job in page["jobs"]) == ["p1", "q1"]


def test_401_403_and_404_are_distinguished_in_the_url_form(filled: Serving) -> None:
    who = key(filled, allow("pai:Get*", "acs:pai:*:*:resourcegroup/g1"))
    bearer = {"Authorization": f"Bearer {who.token}"}

    def call_as(group: str, headers: dict[str, str]) -> tuple[int, str]:
        reply = filled.raw("GET", GROUP + group, headers=headers)
        return reply.status, reply.json().get("Code", "")

    assert call_as("g1", bearer) == (200, "")
    assert call_as("g1", {"Authorization": "Bearer wrong"}) == (401, "Unauthorized")
    refused = key(filled, allow("pai:List*"))
    assert call_as("g1", {"Authorization": f"Bearer {refused.token}"}) == (403, "UnauthorizedOperation")
    hidden, absent = call_as("g2", bearer), call_as("none", bearer)
    assert hidden == absent
    assert hidden[0] == 404


def test_a_group_with_a_denied_workspace_is_not_summed_up(filled: Serving) -> None:
    who = key(filled, allow("pai:*"), allow("pai:*", "acs:pai:*:*:workspace/w1", "Deny"))
    assert filled.raw("GET", GROUP + "g1", headers={"Authorization": f"Bearer {who.token}"}).status == 404


def test_what_cannot_be_narrowed_is_refused(filled: Serving) -> None:
    who = key(filled, allow("*", "acs:*:*:*:resourcegroup/g1"))
    bearer = {"Authorization": f"Bearer {who.token}"}
    assert filled.raw("GET", "/api/suggest?type=metrics", headers=bearer).status == 403
    assert filled.call("POST", "/jobs", {"jobs": []}, key=who).status == 403
    assert filled.call("DELETE", "/jobs/p1", key=who).status == 403
    assert filled.call("GET", "/keys", key=who).status == 403
    assert filled.call("POST", "/keys", {"name": "x", "role": "admin"}, key=key(filled, allow("*"))).status == 403
    assert filled.call("GET", "/catalog", key=who).status == 200
    assert filled.call("GET", "/whoami", key=who).status == 200


def test_a_partial_grant_is_refused_in_the_words_of_the_api(filled: Serving) -> None:
    for statements in (
        [allow("*", "acs:*:*:*:resourcegroup/g1")],
        [allow("*"), allow("*", "acs:*:*:*:job/p1", "Deny")],
    ):
        who = key(filled, *statements)
        bearer = {"Authorization": f"Bearer {who.token}"}
        of_sdk = {**bearer, "x-acs-version": "2022-12-15", "x-acs-action": "ListDiagnosticResults"}
        answers = [
            filled.raw("POST", "/", headers=of_sdk),
            filled.raw("POST", "/api/eflo/2022-12-15/ListDiagnosticResults", headers=bearer),
            filled.call("GET", "/tasks", key=who),
        ]
        assert [one.status for one in answers] == [403] * 3
        codes = [answers[0].json()["Code"], answers[1].json()["Code"], answers[2].json()["error"]["code"]]
        assert codes == ["Forbidden.RAM", "UnauthorizedOperation", "forbidden"]
        assert "whole project" in answers[2].json()["error"]["message"]


def test_the_size_of_a_job_is_for_those_who_may_see_it(filled: Serving) -> None:
    services = filled.application.services
    question = SizesQuestion(jobs=(("p", "p1"), ("p", "p2"), ("q", "q1"), ("q", "q2")))

    def sizes(*statements: dict[str, Any]) -> list[int]:
        holder = services.authenticator.authenticate(
            Call("GET", "/", "", (("authorization", f"Bearer {key(filled, *statements).token}"),)), (BEARER,)
        )
        scope = authorize(holder, "jobs:read", None, ("native", "listJobs"), by_resource=True)
        return [one.replicas for one in services.executor.run(question, scope)]

    assert sizes(allow("*")) == [1, 1, 1, 1]
    assert sizes(allow("*", "acs:*:*:*:resourcegroup/g1")) == [1, 0, 1, 0]
    assert sizes(allow("*"), allow("*", "acs:*:*:*:job/p?", "Deny")) == [0, 0, 1, 1]
    assert sizes(allow("*", "acs:*:*:*:cluster/c2")) == [0, 1, 0, 1]


def test_a_project_shows_the_newest_job_that_its_viewer_may_see(filled: Serving) -> None:
    """Baseten's projects have a ``latest_job``; a key that sees some jobs of a project sees the project."""

    def latest(*statements: dict[str, Any]) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {key(filled, *statements).token}"}
        found = filled.raw("GET", "/v1/training_projects", headers=bearer).json()["training_projects"]
        return {one["id"]: one["latest_job"]["id"] for one in found}

    assert latest(allow("*")) == {"p": "p2", "q": "q2"}
    assert latest(allow("*"), allow("*", "acs:*:*:*:job/p2", "Deny")) == {"p": "p1", "q": "q2"}
    assert latest(allow("*", "acs:*:*:*:resourcegroup/g1")) == {"p": "p1", "q": "q1"}
    assert latest(allow("*", "acs:*:*:*:job/q1")) == {"q": "q1"}


def test_listings_of_keys_name_policies(server: Serving) -> None:
    made = key(server, allow("*"))
    listed = {one["id"]: one["policies"] for one in server.call("GET", "/keys").json()["keys"]}
    assert listed == {server.admin.id: [], made.id: ["own"]}
