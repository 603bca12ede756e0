import msgspec
import pytest
from tests.support.fakes import NOW

from jobmeter.model.event import Event
from jobmeter.server.native.bodies import EventBody

EVENTS = [
    {"time": NOW - 9_000, "job": "j1", "reason": "Submitted", "message": "Größe 1"},
    {"time": NOW - 8_000, "job": "j1", "replica": "w-0", "node": "n1", "source": "replica", "level": "warning",
     "reason": "BackOff"},
    {"time": NOW - 7_000, "job": "j1", "replica": "w-1", "node": "n1", "cluster": "c", "source": "replica",
     "level": "error", "reason": "OOMKilled", "message": "größe 2"},
    {"time": NOW - 6_000, "node": "n1", "source": "node", "level": "error", "reason": "XidError"},
]  # fmt: skip


@pytest.fixture
def stored(server):
    body = {
        "jobs": [{"job_id": "j1", "state": "Running", "start": NOW - 10_000}],
        "nodes": [{"name": "n1", "resource_group": "rg"}, {"name": "n2"}],
        "events": EVENTS,
    }
    assert server.call("POST", "/jobs", body).json() == {"records": 7}
    return server


def reasons(answer):
    assert answer.status == 200, answer.body
    found = answer.json()
    return [event["reason"] for event in found["events"]], found["total"]


def test_an_event_has_every_field(stored):
    assert EventBody.__struct_fields__ == ("id", "type", "object", *Event.__struct_fields__)
    event = msgspec.convert(EVENTS[2], Event)
    more = {"id": event.id, "type": event.type.value, "object": msgspec.to_builtins(event.object)}
    answer = stored.call("GET", "/jobs/j1/events?source=replica&order=desc&limit=1").json()
    assert answer == {
        "job": "j1",
        "project": "default",
        "total": 2,
        "events": [{"project": "default", "attempt": 0, "subject": "", "actor": "", **EVENTS[2], **more}],
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["Running", "Submitted", "BackOff", "OOMKilled"]),
        ("order=desc", ["OOMKilled", "BackOff", "Submitted", "Running"]),
        ("source=state", ["Running"]),
        ("source=job,replica&source=node", ["Submitted", "BackOff", "OOMKilled"]),
        ("level=warning", ["BackOff", "OOMKilled"]),
        ("level=debug", ["Running", "Submitted", "BackOff", "OOMKilled"]),
        ("contains=GR%C3%96SSE", ["Submitted", "OOMKilled"]),
        ("contains=backoff", ["BackOff"]),
        ("replica=w-0,w-1", ["BackOff", "OOMKilled"]),
        (f"start={NOW - 8_000}&end={NOW - 7_000}", ["BackOff"]),
        ("since=8s", ["BackOff", "OOMKilled"]),
        (f"since=1s&end={NOW - 8_000}", ["Submitted"]),
    ],
)
def test_events_of_a_job_are_found(stored, query, found):
    assert reasons(stored.call("GET", f"/jobs/j1/events?{query}")) == (found, len(found))


def test_pages_of_events(stored):
    assert reasons(stored.call("GET", "/jobs/j1/events?limit=2&offset=1")) == (["Submitted", "BackOff"], 4)
    assert reasons(stored.call("GET", "/jobs/j1/events?limit=0")) == ([], 4)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("level=loud", "level"),
        ("source=rumour", "source"),
        ("order=up", "order"),
        ("limit=1001", "limit"),
        ("start=noon", "start"),
        ("start=1&since=1h", "since"),
        ("until=1", "until"),
    ],
)
def test_a_wrong_parameter_is_named(stored, query, field):
    answer = stored.call("GET", f"/jobs/j1/events?{query}")
    assert (answer.status, answer.json()["error"]["field"]) == (400, field)


def test_events_of_a_node_include_those_of_replicas_on_it(stored):
    assert reasons(stored.call("GET", "/nodes/n1/events")) == (["BackOff", "OOMKilled", "XidError"], 3)
    assert reasons(stored.call("GET", "/nodes/n1/events?level=error&source=node")) == (["XidError"], 1)
    assert reasons(stored.call("GET", "/nodes/n2/events")) == ([], 0)
    assert stored.call("GET", "/nodes/n1/events?cluster=c").status == 404
    assert stored.call("GET", "/nodes/n3/events").status == 404


def test_another_projects_key_sees_none_of_it(stored):
    stranger = stored.key("reader", "other")
    assert stored.call("GET", "/jobs/j1/events", key=stranger).status == 404
    assert stored.call("GET", "/nodes/n1/events", key=stranger).status == 404


def test_what_a_key_may_not_write_is_refused_whole(stored):
    writer = stored.key("writer", "other")
    event = {"time": NOW, "job": "j9", "project": "default"}
    body = {"jobs": [{"job_id": "j9", "state": "Queued"}], "events": [event]}
    assert stored.call("POST", "/jobs", body, key=writer).status == 403
    assert stored.call("GET", "/jobs/j9", key=writer).status == 404
    del event["project"]
    assert stored.call("POST", "/jobs", body, key=writer).json() == {"records": 2}
    assert stored.call("GET", "/jobs/j9/events", key=writer).json()["total"] == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"time": "noon"}, "events.time"),
        ({"job": "a/b"}, "events.job"),
        ({"job": "", "node": ""}, "events.job"),
        ({"job": "", "replica": "w", "node": "n"}, "events.job"),
        ({"replica": "../w"}, "events.replica"),
        ({"node": "a b"}, "events.node"),
        ({"cluster": "a b"}, "events.cluster"),
        ({"attempt": -1}, "events.attempt"),
        ({"project": "a b"}, "events.project"),
        ({"level": "loud"}, "events[0].level"),
        ({"source": "rumour"}, "events[0].source"),
        ({"reason": "x" * 257}, "events.reason"),
        ({"message": "x" * 65_537}, "events.message"),
        ({"more": 1}, "events[0]"),
    ],
)
def test_an_event_that_cannot_be_meant_names_its_field(stored, change, field):
    answer = stored.call("POST", "/jobs", {"events": [{"time": NOW, "job": "j1", **change}]})
    assert (answer.status // 100, answer.json()["error"]["field"]) == (4, field)
    assert stored.call("GET", "/jobs/j1/events").json()["total"] == 4


def test_nodes_of_a_resource_group(stored):
    nodes = stored.call("GET", "/nodes?resource_group=rg,other").json()["nodes"]
    assert [(node["name"], node["resource_group"]) for node in nodes] == [("n1", "rg")]
    assert len(stored.call("GET", "/nodes").json()["nodes"]) == 2


def test_how_many_events_were_dropped_is_shown(server):
    assert b"jobmeter_events_dropped_total 0.0" in server.raw("GET", "/metrics").body
