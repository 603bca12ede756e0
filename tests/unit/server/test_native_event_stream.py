"""Tests of ``/events``: a stream with filters, stable pages and ids; events of keys are for administrators."""

import pytest
from tests.support.frames import records
from tests.support.serving import serving

NOW = 1_767_225_600_000


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    yield made
    made.application.close()


def _events(server, query="", key=None):
    answer = server.call("GET", f"/events{query}", key=key)
    assert answer.status == 200, answer.body
    return answer.json()


def _send_events(server, *events, project="default"):
    body = {"events": [{"time": NOW, "project": project, **event} for event in events]}
    assert server.ingest(records(body)).status == 200


def test_the_stream_has_everything_with_id_type_object(server):
    _send_events(
        server,
        {"job": "j", "replica": "w-0", "source": "replica", "reason": "OOMKilled", "level": "error"},
        {"node": "n", "source": "node", "reason": "Xid", "message": "79", "subject": "device gpu0"},
    )
    page = _events(server, "?type=oom,device_fault")
    oom, xid = page["events"]
    assert page["total"] == 2
    assert (oom["type"], oom["object"], oom["source"]) == ("oom", {"kind": "replica", "name": "w-0"}, "replica")
    assert (xid["type"], xid["object"]) == ("device_fault", {"kind": "device", "name": "gpu0"})
    assert server.call("GET", f"/events/{xid['id']}").json() == xid
    assert [one["id"] for one in _events(server, "?node=n")["events"]] == [xid["id"]]
    assert [one["id"] for one in _events(server, "?job=j&level=error")["events"]] == [oom["id"]]
    assert [one["id"] for one in _events(server, f"?type=oom,device_fault&after={oom['id']}")["events"]] == [xid["id"]]


def test_keys_are_reported_to_administrators_alone(server):
    reader = server.key("reader", "default")
    made = [one for one in _events(server, "?type=key")["events"] if one["project"] == "default"]
    assert [one["message"] for one in made] == ["Key reader-key of role reader was made."]
    assert _events(server, "?type=key", reader)["events"] == []
    assert server.call("GET", f"/events/{made[0]['id']}", key=reader).status == 404


def test_another_project_sees_nothing(server):
    _send_events(server, {"job": "j", "reason": "Pulled"}, project="theirs")
    other = server.key("reader", "ours")
    [one] = _events(server, "?job=j")["events"]
    assert _events(server, "?job=j", other) == {"events": [], "total": 0}
    assert server.call("GET", f"/events/{one['id']}", key=other).status == 404


@pytest.mark.parametrize("query", ["?type=nothing", "?after=x", f"?after={'0' * 32}", "?limit=1001", "?source=me"])
def test_wrong_questions_are_named(server, query):
    _send_events(server, {"job": "j", "reason": "Pulled"})
    answer = server.call("GET", f"/events{query}")
    assert answer.status == 400
    assert answer.json()["error"]["field"] == query[1:].partition("=")[0]


def test_nobody_reports_in_the_servers_name(server):
    forged = {"events": [{"time": NOW, "job": "j", "source": "server", "reason": "KeyCreated"}]}
    assert server.ingest(records(forged)).status == 400


def _actors(server, kind):
    return {(one["reason"], one["actor"]) for one in _events(server, f"?type={kind}&limit=1000")["events"]}


def test_what_a_call_did_to_keys_names_its_key(server):
    admin = server.admin.id
    made = server.call("POST", "/keys", {"name": "ci", "policies": ["AliyunPAIFullAccess"]})
    assert made.status == 200, made.body
    path = f"/keys/{made.json()['id']}"
    changed = server.call("PUT", f"{path}/policies", {"policies": ["AliyunARMSFullAccess"]})
    assert changed.status == 200, changed.body
    assert server.call("DELETE", path).status == 200
    assert server.ingest(records({"jobs": [{"job_id": "j"}]})).status == 200
    link = server.call("POST", "/jobs/j/links", {})
    assert link.status == 200, link.body
    assert server.call("DELETE", f"/jobs/j/links/{link.json()['id']}").status == 200
    named = {(one["object"]["name"], one["reason"], one["actor"]) for one in _events(server, "?type=key")["events"]}
    for name, reasons in (
        (made.json()["id"], ("KeyCreated", "KeyPoliciesChanged", "KeyRevoked")),
        (link.json()["id"], ("KeyCreated", "KeyRevoked")),
    ):
        assert {(name, reason, admin) for reason in reasons} <= named
    assert (server.admin.id, "KeyCreated", "") in named  # the server created it on its own


def test_nobody_names_the_actor_of_an_event_of_their_own(server):
    forged = {"events": [{"time": NOW, "job": "j", "reason": "Pulled", "actor": server.admin.id}]}
    server.ingest(records(forged))
    assert [one["actor"] for one in _events(server, "?job=j")["events"]] == [""]


def test_who_made_and_deleted_a_shipper_is_named_by_either_way(tmp_path):
    sinks = tmp_path / "sinks.toml"
    sinks.write_text(f'[[sink]]\nproject = "p"\nlogstore = "l"\nkind = "file"\ndirectory = "{tmp_path}/logs"\n')
    server = serving(tmp_path / "data", sinks=str(sinks))
    try:
        wanted = {"resource_group": "rg", "sink_project": "p", "logstore": "l"}
        made = server.call("POST", "/shippers", wanted)
        assert made.status == 200, made.body
        other = server.key("admin")
        headers = {"Authorization": f"Bearer {other.token}"}
        path = "/api/eas/2021-07-01/DeleteResourceLog?ClusterId=c&ResourceId=rg"
        deleted = server.raw("DELETE", path, headers=headers)
        assert deleted.status == 200, deleted.body
        assert _actors(server, "shipper") == {("ShipperCreated", server.admin.id), ("ShipperDeleted", other.id)}
    finally:
        server.application.close()
