"""``/events``: one stream, with filters, stable pages and ids; keys are for administrators."""

import pytest
from tests.frames import records
from tests.serving import serving

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
