"""Alerts, silences and messages in the registry."""

from jobmeter.model.alert import Alert, AlertState, LabelMatcher, Message, NotificationGroup, Silence
from jobmeter.registry import alerts as table


def alert(name="a", **fields):
    own = {"rule": "r", "project": "p", "labels": {"x": "\0y"}, "annotations": {}, "state": AlertState.FIRING}
    return Alert(**{"fingerprint": name, "value": "1", "started": 1, **own, **fields})


def message(destination="d", body="{}"):
    return Message(destination=destination, body=body, created=5)


def test_alerts_are_stored_replaced_and_deleted(registry):
    registry.alerts.put([alert(value="1.5"), alert("b", value="2.5", started=0)])
    registry.alerts.put([alert(value="3.5", state=AlertState.RESOLVED, resolved=9)], ["none"])
    assert [(one.fingerprint, one.value, one.state.value) for one in registry.alerts.all()] == [
        ("b", "2.5", "firing"),
        ("a", "3.5", "resolved"),
    ]
    registry.alerts.put([], ["a", "b"])
    assert registry.alerts.all() == []


def test_silences_are_stored_and_deleted(registry):
    made = Silence(
        id="s", project="", matchers=(LabelMatcher("a", "b", True, False),), start=1, end=2, author="x", comment="y",
        updated=1,
    )  # fmt: skip
    registry.alerts.put_silence(made)
    assert registry.alerts.silences() == [made]
    registry.alerts.put_silence(made, ["s0"])
    assert registry.alerts.silences() == [made]


def test_messages_are_stored_with_their_groups(registry):
    group = NotificationGroup(key="k", sent=5, states={"a": AlertState.FIRING})
    registry.alerts.decide([group], [], [message(body="1"), message(body="2"), message("e", "3")], 5)
    assert registry.alerts.groups() == [group]
    first, other = registry.alerts.waiting()
    assert [(one.destination, one.body) for one in (first, other)] == [("d", "1"), ("e", "3")]
    registry.alerts.retry(first.id, 77, "away")
    again = registry.alerts.waiting()[0]
    assert (again.id, again.tries, again.next_try, again.error) == (first.id, 1, 77, "away")
    registry.alerts.delivered(first.id)
    assert [one.body for one in registry.alerts.waiting()] == ["2", "3"]
    registry.alerts.decide([], ["k"], [], 6)
    assert registry.alerts.groups() == []


def test_the_oldest_messages_are_dropped(registry, monkeypatch):
    monkeypatch.setattr(table, "MOST_MESSAGES", 3)
    assert registry.alerts.decide([], [], [message(body=str(number)) for number in range(5)], 5) == 2
    assert registry.alerts.decide([], [], [message("e")], 5) == 0
    assert [one.body for one in registry.alerts.waiting()] == ["2", "{}"]
