"""Tests of keys with policies over HTTP: creation, changes, refusals, and their events in the stream."""

import json

import pytest
from tests.support.serving import BASE

from jobmeter.access.policy import MOST_POLICIES

READ = {"Effect": "Allow", "Action": "jobmeter:listJobs", "Resource": "*"}
WRITE = {"Effect": "Allow", "Action": "jobmeter:*", "Resource": "*"}


def own(*statements, name="own"):
    return {"name": name, "document": {"Version": "1", "Statement": list(statements)}}


def made(server, key=None, **body):
    reply = server.call("POST", "/keys", {"name": "k", **body}, key)
    assert reply.status == 200, reply.body
    return reply.json()


def status_of(server, token, path):
    return server.raw("GET", f"{BASE}{path}", headers={"Authorization": f"Bearer {token}"}).status


def test_a_key_may_do_what_its_policies_allow(server):
    key = made(server, policies=["AliyunPAIReadOnlyAccess", own(READ)])
    assert (key["role"], key["policies"]) == ("admin", ["AliyunPAIReadOnlyAccess", "own"])
    assert [status_of(server, key["token"], path) for path in ("/jobs", "/nodes", "/keys")] == [200, 403, 403]
    (listed,) = [one for one in server.call("GET", "/keys").json()["keys"] if one["id"] == key["id"]]
    assert listed["policies"] == ["AliyunPAIReadOnlyAccess", "own"]
    both = made(server, role="reader", policies=[own(WRITE)])
    assert [status_of(server, both["token"], path) for path in ("/jobs", "/status")] == [200, 403]
    plain = made(server, role="reader")
    assert plain["policies"] == []


@pytest.mark.parametrize(
    ("body", "field", "problem"),
    [
        ({}, "role", "a role, policies, or both"),
        ({"policies": []}, "role", "a role, policies, or both"),
        ({"policies": ["Nobody"]}, "policies[0]", "unknown policy 'Nobody'"),
        ({"policies": ["JobmeterFullAccess", own({**READ, "Condition": {}})]}, "policies[1]", "Condition"),
        ({"policies": [own({**READ, "Effect": "Perhaps"})]}, "policies[0]", "Effect"),
        ({"policies": [own({**READ, "Resource": "acs:x"})]}, "policies[0]", "'acs:x'"),
        ({"policies": [own()]}, "policies[0]", "statements"),
        ({"policies": [{"name": "x", "document": {"Version": "2", "Statement": [READ]}}]}, "policies[0]", "Version"),
        ({"policies": [own(READ, name="")]}, "policies[0].name", "1 to 100"),
        ({"policies": [own(READ, name="a\nb")]}, "policies[0].name", "printable"),
        ({"policies": [{"name": "x"}]}, "policies[0]", "document"),
        ({"policies": [own(READ)] * (MOST_POLICIES + 1)}, "policies", f"at most {MOST_POLICIES}"),
        ({"policies": "JobmeterFullAccess"}, "policies", "array"),
        ({"policies": [7]}, "policies[0]", "int"),
    ],
)
def test_a_wrong_policy_is_refused_by_its_place(server, body, field, problem):
    count = len(server.call("GET", "/keys").json()["keys"])
    reply = server.call("POST", "/keys", {"name": "k", **body})
    error = reply.json()["error"]
    assert (reply.status, error["field"]) == (400, field), error
    assert problem in error["message"]
    assert len(server.call("GET", "/keys").json()["keys"]) == count


def test_only_administrators_without_policies_make_and_change_keys(server):
    target = made(server, role="reader", project="p1", policies=[own(READ)])
    body = {"name": "k", "policies": ["JobmeterFullAccess"]}
    change = f"/keys/{target['id']}/policies"
    bounded = made(server, policies=["JobmeterFullAccess"])
    for key in (server.key("reader"), server.key("writer")):
        assert server.call("POST", "/keys", body, key).status == 403
        assert server.call("PUT", change, {"policies": [own(WRITE)]}, key).status == 403
    for method, path, given in (
        ("POST", "/keys", body),
        ("PUT", change, {"policies": [own(WRITE)]}),
        ("PUT", f"/keys/{bounded['id']}/policies", {"policies": ["JobmeterFullAccess"]}),
    ):
        headers = {"Authorization": f"Bearer {bounded['token']}", "Content-Type": "application/json"}
        assert server.raw(method, f"{BASE}{path}", json.dumps(given).encode(), headers).status == 403
    assert made(server, server.key("admin", "p1"), policies=[own(READ)])["project"] == "p1"
    assert server.call("PUT", change, {"policies": [own(READ)]}, server.key("admin", "p2")).status == 404


def test_policies_are_replaced_at_once(server):
    key = made(server, policies=[own(READ)])
    assert [status_of(server, key["token"], path) for path in ("/jobs", "/nodes")] == [200, 403]
    change = f"/keys/{key['id']}/policies"
    reply = server.call("PUT", change, {"policies": [own({**READ, "Action": "jobmeter:listNodes"}, name="nodes")]})
    assert (reply.status, reply.json()["policies"]) == (200, ["nodes"])
    assert "token" not in reply.json()
    assert [status_of(server, key["token"], path) for path in ("/jobs", "/nodes")] == [403, 200]
    empty = server.call("PUT", change, {"policies": []})
    assert (empty.status, empty.json()["error"]["field"]) == (400, "policies")
    wrong = server.call("PUT", change, {"policies": [own(READ), "None"]})
    assert (wrong.status, wrong.json()["error"]["field"]) == (400, "policies[1]")
    assert server.call("DELETE", f"/keys/{key['id']}").status == 200
    for gone in (key["id"], "key-none"):
        assert server.call("PUT", f"/keys/{gone}/policies", {"policies": [own(READ)]}).status == 404


def test_the_life_of_a_key_is_in_the_stream_without_its_secrets(server):
    key = made(server, project="p1", policies=[own(READ)])
    server.call("PUT", f"/keys/{key['id']}/policies", {"policies": ["AliyunPAIReadOnlyAccess"]})
    server.call("DELETE", f"/keys/{key['id']}")
    reply = server.call("GET", "/events?type=key&project=p1")
    events = [one for one in reply.json()["events"] if one["object"]["name"] == key["id"]]
    assert [one["reason"] for one in events] == ["KeyCreated", "KeyPoliciesChanged", "KeyRevoked"]
    assert {(one["type"], one["source"], one["object"]["kind"]) for one in events} == {("key", "server", "key")}
    assert [one["message"] for one in events] == [
        "Key k of role admin was made, with the policies own.",
        "Key k of role admin has other policies, with the policies AliyunPAIReadOnlyAccess; before: own.",
        "Key k of role admin was revoked.",
    ]
    for secret in ("token", "access_key_secret", "access_key_id"):
        assert key[secret].encode() not in reply.body
    hidden = server.call("GET", "/events?project=p1", key=server.key("reader", "p1")).json()["events"]
    assert [one for one in hidden if one["type"] == "key"] == []


def test_the_document_of_the_api_has_the_policies(server):
    document = server.raw("GET", f"{BASE}/openapi.json").json()
    paths, schemas = document["paths"], document["components"]["schemas"]
    body = paths[f"{BASE}/keys"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/NewKey"}
    body = schemas["NewKey"]
    assert body["required"] == ["name"]
    name, own_policy = body["properties"]["policies"]["items"]["anyOf"]
    assert "AliyunPAIFullAccess" in name["enum"]
    assert own_policy == {"$ref": "#/components/schemas/OwnPolicy"}
    assert schemas["OwnPolicy"]["required"] == ["name", "document"]
    assert "put" in paths[f"{BASE}/keys/{{key}}/policies"]


def test_the_policies_of_a_key_are_read_with_their_documents(server):
    key = made(server, policies=["AliyunPAIReadOnlyAccess", own(READ)])
    told = server.call("GET", f"/keys/{key['id']}/policies").json()["policies"]
    assert [one["name"] for one in told] == ["AliyunPAIReadOnlyAccess", "own"]
    assert told[1]["document"]["Statement"] == [READ]
    shipped = server.call("GET", "/policies").json()
    assert [one["name"] for one in shipped["documents"]] == shipped["policies"]
    assert told[0] in shipped["documents"]
    plain = made(server, role="reader")
    assert server.call("GET", f"/keys/{plain['id']}/policies").json() == {"policies": []}
    assert server.call("GET", "/keys/key-none/policies").status == 404


def test_an_administrator_of_a_project_reads_the_policies_of_its_keys_alone(server):
    key = made(server, project="p1", policies=[own(READ)])
    inside, outside = (made(server, role="admin", project=project)["token"] for project in ("p1", "p2"))
    assert [status_of(server, token, f"/keys/{key['id']}/policies") for token in (inside, outside)] == [200, 404]
