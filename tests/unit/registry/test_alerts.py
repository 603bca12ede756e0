"""Tests of alerts, silences and messages in the registry."""

import pytest
from msgspec.structs import replace

from jobmeter.model.alert import Alert, AlertState, LabelMatcher, Message, NotificationGroup, Silence
from jobmeter.model.event import EventFilter, EventType
from jobmeter.model.record import JobRecord, Records
from jobmeter.registry import alerts as table


def alert(name="a", **fields):
    own = {"rule": "r", "project": "p", "labels": {"x": "\0y"}, "annotations": {}, "state": AlertState.FIRING}
    return Alert(**{"fingerprint": name, "value": "1", "started": 1, **own, **fields})


def message(destination="d", body="{}"):
    return Message(destination=destination, body=body, created=5)


def test_alerts_are_stored_replaced_and_deleted(registry):
    registry.alerts.put([alert(value="1.5"), alert("b", value="2.5", started=0)])
    registry.alerts.put([alert(value="3.5", state=AlertState.RESOLVED, resolved=9)], ["none"])
    assert [(one.fingerprint, one.value, one.state.value) for one in registry.alerts.list_alerts()] == [
        ("b", "2.5", "firing"),
        ("a", "3.5", "resolved"),
    ]
    registry.alerts.put([], ["a", "b"])
    assert registry.alerts.list_alerts() == []


FIRED = {"labels": {"job_id": "j", "alertname": "Hot"}, "started": 3, "fired": 5}
ENDED = {**FIRED, "state": AlertState.RESOLVED, "resolved": 9}


def events(registry, project="p"):
    return registry.list_events(EventFilter(projects=frozenset({project}), types=frozenset({EventType.ALERT}))).events


@pytest.fixture
def job(registry):
    registry.record("p", Records(jobs=[JobRecord(job_id="j")]), 1)


def test_each_change_of_an_alert_about_a_job_is_one_event(registry, job):
    registry.alerts.put([alert(**{**FIRED, "state": AlertState.PENDING, "fired": None})])
    assert events(registry) == []
    for value in ("1", "2"):
        registry.alerts.put([alert(value=value, **FIRED)])
    for later in (9, 10):  # another server decides the same later
        registry.alerts.put([alert(**{**ENDED, "resolved": later})])
    registry.alerts.put([], ["a"])
    registry.alerts.put([alert(**ENDED)])
    found = [(one.time, one.reason, one.job, one.subject, one.message) for one in events(registry)]
    assert found == [(5, "AlertFiring", "j", "alert a", "Hot"), (9, "AlertResolved", "j", "alert a", "Hot")]
    registry.alerts.put([alert(**{**FIRED, "fired": 20})])
    assert [one.time for one in events(registry)] == [5, 9, 20]


def test_alerts_of_one_time_have_an_event_each_with_their_texts(registry, job):
    texts = {"job_id": "j", "alertname": "Hot", "replica": "w-0", "node": "n" * 2_000}
    summary = {"summary": "too \0 hot " + "x" * 2_000}
    made = [
        alert(name, **{**FIRED, "labels": {**texts, "severity": severity}, "annotations": summary})
        for name, severity in (("a", "critical"), ("b", "critical"), ("c", "warning"), ("d", "page"))
    ]
    registry.alerts.put(made)
    registry.alerts.put([replace(one, state=AlertState.RESOLVED, resolved=9) for one in made])
    fired, ended = events(registry)[:4], events(registry)[4:]
    assert [one.level for one in fired] == ["error", "error", "warning", "info"]
    assert {one.level for one in ended} == {"info"}
    assert {(one.replica, one.node, len(one.message)) for one in fired} == {("w-0", "", 1_000)}
    assert fired[0].message.startswith("Hot (critical): too \ufffd hot x")


def test_an_alert_without_a_job_of_its_project_adds_no_event(registry, job):
    registry.alerts.put([alert("a", **{**FIRED, "labels": {"job_id": "no\0ne"}}), alert("b", labels={"x": "y"})])
    registry.alerts.put([alert("c", **{**FIRED, "project": "q"}), alert("d", **{**FIRED, "project": ""})])
    assert [one for name in ("p", "q", "") for one in events(registry, name)] == []


def test_silences_are_stored_and_deleted(registry):
    made = Silence(
        id="s", project="", matchers=(LabelMatcher("a", "b", True, False),), start=1, end=2, author="x", comment="y",
        updated=1,
    )  # fmt: skip
    registry.alerts.put_silence(made)
    assert registry.alerts.list_silences() == [made]
    registry.alerts.put_silence(made, ["s0"])
    assert registry.alerts.list_silences() == [made]


def test_messages_are_stored_with_their_groups(registry):
    group = NotificationGroup(key="k", sent=5, states={"a": AlertState.FIRING})
    registry.alerts.decide([group], [], [message(body="1"), message(body="2"), message("e", "3")], 5)
    assert registry.alerts.list_groups() == [group]
    first, other = registry.alerts.list_waiting()
    assert [(one.destination, one.body) for one in (first, other)] == [("d", "1"), ("e", "3")]
    registry.alerts.retry(first.id, 77, "away")
    again = registry.alerts.list_waiting()[0]
    assert (again.id, again.tries, again.next_try, again.error) == (first.id, 1, 77, "away")
    registry.alerts.delete_message(first.id)
    assert [one.body for one in registry.alerts.list_waiting()] == ["2", "3"]
    registry.alerts.decide([], ["k"], [], 6)
    assert registry.alerts.list_groups() == []


def test_the_oldest_messages_are_dropped(registry, monkeypatch):
    monkeypatch.setattr(table, "MOST_MESSAGES", 3)
    assert registry.alerts.decide([], [], [message(body=str(number)) for number in range(5)], 5) == 2
    assert registry.alerts.decide([], [], [message("e")], 5) == 0
    assert [one.body for one in registry.alerts.list_waiting()] == ["2", "{}"]
