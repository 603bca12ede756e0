"""Tests of the event stream on both databases: ids, types, cursors, and the events of nodes and keys."""

import itertools

import msgspec
import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import WHOLE_SERVER, Event, EventFilter, EventSource, EventType, Level
from jobmeter.model.job import JobState
from jobmeter.model.record import EventRecord, JobRecord, NodeRecord, Records, ReplicaRecord, check_event
from jobmeter.model.time import DAY
from jobmeter.registry.base import Registry
from jobmeter.registry.emit import emit

NOW = 1_790_000_000_000
SECOND = 1_000
REASONS = (
    "Finding",
    "OOMKilled",
    "Xid",
    "CpuThrottled",
    "NodeDown",
    "AlertFiring",
    "KeyCreated",
    "Pulled",
    "Running",
    "Failed",
    "",
)


def every(registry: Registry, **question: object) -> list[Event]:
    return registry.list_events(EventFilter(limit=1_000, **question)).events  # type: ignore[arg-type]


def test_every_type_is_found_by_its_filter_and_each_event_has_one(registry: Registry) -> None:
    stored = [
        Event(time=NOW + at, job="j" if job else "", node="n", replica=replica, source=source, reason=reason)
        for at, (job, source, reason, replica) in enumerate(
            itertools.product((True, False), EventSource, REASONS, ("", "w-0"))
        )
    ]
    registry.add_events(stored)
    assert every(registry) == stored
    for kind in EventType:
        chosen = [event for event in stored if event.type is kind]
        assert every(registry, types=frozenset({kind})) == chosen, kind
        assert every(registry, without=frozenset({kind})) == [one for one in stored if one not in chosen]


def test_an_event_has_the_same_id_wherever_it_is_requested(registry: Registry) -> None:
    sent_event = EventRecord(time=NOW, job="j", reason="Xid", message="a\0b", subject="device gpu0")
    registry.record("p", Records(events=[sent_event]), NOW)
    [event] = every(registry)
    assert event.subject == "device gpu0"
    assert (event.object.kind, event.object.name) == ("device", "gpu0")
    assert every(registry, ids=(event.id,)) == [event]
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event).id == event.id
    with pytest.raises(InvalidRequestError, match="not the id"):
        every(registry, ids=("x",))


@pytest.mark.parametrize("descending", [False, True])
def test_pages_behind_an_id_miss_and_repeat_nothing_while_others_write(registry: Registry, descending: bool) -> None:
    stored = [Event(time=NOW + at // 3, job="j", message=str(at)) for at in range(20)]
    registry.add_events(stored)
    expected = EventFilter(jobs=("j",), descending=descending, limit=3)
    found: list[Event] = []
    while page := registry.list_events(expected).events:
        found += page
        expected = msgspec.structs.replace(expected, after=page[-1].id)
        # An event that sorts before the ones already read.
        outer = NOW + 1_000 if descending else NOW - 1_000
        registry.add_events([Event(time=outer, job="j", message=f"later {len(found)}")])
    assert found == (stored[::-1] if descending else stored)
    with pytest.raises(InvalidRequestError, match="the event of this id no longer exists"):
        every(registry, after="0" * 32)


def test_an_end_reports_its_exit_status(registry: Registry) -> None:
    ended = ReplicaRecord(name="w-0", state=JobState.FAILED, start=NOW, end=NOW + 5, exit_code=137, reason="OOM")
    registry.record("p", Records(jobs=[JobRecord(job_id="j", start=NOW, replicas=[ended])]), NOW)
    [event] = every(registry, types=frozenset({EventType.REPLICA_END}))
    assert (event.replica, event.message, event.level) == ("w-0", "exit status 137; OOM", Level.ERROR)


def node(registry: Registry, now_ms: int, **info: object) -> None:
    registry.record("p", Records(nodes=[NodeRecord(name="n", cluster="c", info={"cores": 2, **info})]), now_ms)


def lives(registry: Registry) -> list[tuple[EventType, int]]:
    kinds = frozenset({EventType.NODE_UP, EventType.NODE_DOWN, EventType.NODE_REBOOTED})
    return [(event.type, event.time - NOW) for event in every(registry, types=kinds)]


def test_a_node_comes_goes_comes_back_and_restarts(registry: Registry) -> None:
    node(registry, NOW, boot_id="a")
    node(registry, NOW + 10 * SECOND, boot_id="a")
    assert registry.mark_nodes(NOW + 100 * SECOND, NOW, 180 * SECOND) == 0
    assert registry.mark_nodes(NOW + 200 * SECOND, NOW + 100 * SECOND, 180 * SECOND) == 0, "nobody could hear it"
    assert registry.mark_nodes(NOW + 200 * SECOND, NOW, 180 * SECOND) == 1
    assert registry.mark_nodes(NOW + 210 * SECOND, NOW, 180 * SECOND) == 0
    node(registry, NOW + 300 * SECOND, boot_id="b", booted=NOW + 290 * SECOND)
    assert registry.mark_nodes(NOW + 301 * SECOND, NOW, 180 * SECOND) == 1
    assert lives(registry) == [
        (EventType.NODE_UP, 0),
        (EventType.NODE_DOWN, 200 * SECOND),
        (EventType.NODE_REBOOTED, 300 * SECOND),
        (EventType.NODE_UP, 301 * SECOND),
    ]


def test_a_slow_agent_is_not_down_and_one_of_long_ago_is_no_news(registry: Registry) -> None:
    node(registry, NOW, interval_ms=300 * SECOND)
    assert registry.mark_nodes(NOW + 1_499 * SECOND, NOW, 180 * SECOND) == 0
    assert registry.mark_nodes(NOW + 3 * DAY, NOW, 180 * SECOND) == 0
    node(registry, NOW + 3 * DAY + SECOND, interval_ms=300 * SECOND)
    assert registry.mark_nodes(NOW + 3 * DAY + 2 * SECOND, NOW, 180 * SECOND) == 1
    assert [kind for kind, _ in lives(registry)] == [EventType.NODE_UP, EventType.NODE_UP]


def test_the_server_reports_itself_and_nobody_else_does(registry: Registry) -> None:
    emit(registry, NOW, "ShipperCreated", "Shipper logs was made.", subject="shipper logs")
    [event] = every(registry)
    assert (event.type, event.project, event.object.name) == (EventType.SHIPPER, WHOLE_SERVER, "logs")
    assert registry.prune(NOW + 3_000 * DAY) == 1
    forged = EventRecord(time=NOW, job="j", source=EventSource.SERVER, reason="KeyCreated")
    with pytest.raises(InvalidRequestError, match="only the server"):
        check_event(forged)
