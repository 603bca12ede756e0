"""Tests of events on both databases: stored once, limited, listed by time; and events of state changes."""

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.registries import observation

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Event, EventFilter, EventSource, Level
from jobmeter.model.job import JobState
from jobmeter.model.record import EventRecord, JobRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY
from jobmeter.registry import events as events_module
from jobmeter.registry.base import Registry

NOW = 1_790_000_000_000
STATE = frozenset({EventSource.STATE})
EVENT = EventRecord(time=NOW, job="j", reason="Pulled", message="Image größe pulled")
OBSERVED = observation(NOW, NOW + 5)


def put(registry: Registry, *records: JobRecord, now: int = NOW) -> None:
    registry.record("default", Records(jobs=list(records)), now)


def record_events(registry: Registry, *events: EventRecord, project: str = "default") -> None:
    assert registry.record(project, Records(events=list(events)), NOW) == len(events)


def states(registry: Registry, job: str = "j") -> list[tuple[str, str, int]]:
    page = registry.list_events(EventFilter(jobs=(job,), sources=STATE, limit=1000))
    return [(event.replica, event.reason, event.time) for event in page.events]


def test_an_event_comes_back_with_all_it_said(registry: Registry) -> None:
    whole = EventRecord(
        time="2026-09-01T00:00:00Z", job="j", replica="w-0", attempt=2, cluster="c", node="n",
        source=EventSource.REPLICA, level=Level.ERROR, reason="OOMKilled", message="a\0b '\"%_;--",
    )  # fmt: skip
    record_events(registry, whole, project="p")
    page = registry.list_events(EventFilter(jobs=("j",)))
    assert page.total == 1
    assert page.events == [
        Event(
            time=1_788_220_800_000, project="p", job="j", replica="w-0", attempt=2, cluster="c", node="n",
            source=EventSource.REPLICA, level=Level.ERROR, reason="OOMKilled",
            message="a\N{REPLACEMENT CHARACTER}b '\"%_;--",
        )
    ]  # fmt: skip


def test_an_event_sent_again_counts_once(registry: Registry) -> None:
    others = [
        msgspec.structs.replace(EVENT, **change)
        for change in (
            {"time": NOW + 1}, {"job": "k"}, {"replica": "w"}, {"attempt": 1}, {"cluster": "c"}, {"node": "n"},
            {"source": EventSource.REPLICA}, {"reason": "x"}, {"message": "x"}, {"reason": "", "message": "Pulled"},
        )
    ]  # fmt: skip
    record_events(registry, EVENT, *others, EVENT)
    record_events(registry, msgspec.structs.replace(EVENT, level=Level.WARNING), *others)
    record_events(registry, EVENT, project="p")
    assert registry.list_events(EventFilter()).total == len(others) + 2
    assert registry.list_events(EventFilter(projects=frozenset({"p"}))).total == 1


EVENTS = [
    EventRecord(
        time=NOW + number // 7 * 10,
        job=("j", "k", "")[number % 3],
        replica=("", "w-0", "w-1")[number % 5 % 3] if number % 3 < 2 else "",
        node=("n-1", "n-2")[number % 2] if number % 3 == 2 or number % 4 == 0 else "",
        source=tuple(EventSource)[number % 4],
        level=tuple(Level)[number % 4],
        reason=f"Reason{number % 6}",
        message=f"Größe {number} 100%",
    )
    for number in range(60)
]


def subsets(values: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(values), max_size=2))


times = st.one_of(st.none(), st.sampled_from([NOW - 1, NOW, NOW + 1, NOW + 10, NOW + 50, 2**70]))
questions = st.builds(
    EventFilter,
    projects=st.one_of(st.none(), st.frozensets(st.sampled_from(("a", "b", "none")), max_size=2)),
    jobs=st.one_of(st.just(()), st.sampled_from([("j",), ("j", "k"), ("none",)])),
    replicas=subsets(("w-0", "w-1")),
    nodes=subsets(("n-1", "n-2", "'")),
    sources=st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(EventSource), max_size=2)),
    levels=st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(Level), max_size=2)),
    contains=st.sampled_from(("", "GRÖSSE", "reason1", "%", "_", "größe 1", "\0", "x" * 60_000)),
    start=times,
    end=times,
    descending=st.booleans(),
    offset=st.integers(0, 30),
    limit=st.integers(0, 30),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=questions)
def test_a_page_of_events_is_a_filter_an_order_and_a_slice(registry: Registry, question: EventFilter) -> None:
    if registry.list_events(EventFilter(limit=0)).total == 0:
        for number, event in enumerate(EVENTS):
            record_events(registry, event, project="ab"[number % 2])
    stored = [
        Event(**{**msgspec.structs.asdict(event), "project": "ab"[number % 2]}) for number, event in enumerate(EVENTS)
    ]
    found = [event for event in stored if matches(event, question)]
    found.sort(key=lambda event: event.time)
    if question.descending:
        found.reverse()
    page = registry.list_events(question)
    assert page.total == len(found)
    assert page.events == found[question.offset : question.offset + question.limit]


def matches(event: Event, question: EventFilter) -> bool:
    return (
        (question.projects is None or event.project in question.projects)
        and (not question.jobs or event.job in question.jobs)
        and (not question.replicas or event.replica in question.replicas)
        and (not question.nodes or event.node in question.nodes)
        and (not question.sources or event.source in question.sources)
        and (not question.levels or event.level in question.levels)
        and question.contains.casefold() in f"{event.reason}\n{event.message}".casefold()
        and (question.start is None or event.time >= question.start)
        and (question.end is None or event.time < question.end)
    )


@pytest.mark.parametrize("field", ["offset", "limit"])
def test_a_page_of_events_is_not_negative(registry: Registry, field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        registry.list_events(msgspec.convert({field: -1}, EventFilter))
    assert refused.value.field == field


def test_the_life_of_a_job_is_reported_by_its_states(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", name="n", created=NOW - 100))
    put(registry, JobRecord(job_id="j", state=JobState.QUEUED, created=NOW - 100), now=NOW + 1)
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING), now=NOW + 2)
    put(registry, JobRecord(job_id="j", start=NOW - 50), now=NOW + 3)
    failed = JobRecord(job_id="j", state=JobState.FAILED, end=NOW + 4, error="out of memory")
    put(registry, failed, failed, now=NOW + 9)
    assert states(registry) == [("", "Queued", NOW - 100), ("", "Running", NOW + 2), ("", "Failed", NOW + 4)]
    last = registry.list_events(EventFilter(descending=True, limit=1)).events[0]
    assert (last.level, last.message, last.source) == (Level.ERROR, "out of memory", EventSource.STATE)
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING, start=NOW + 20), now=NOW + 21)
    put(registry, JobRecord(job_id="j", state=JobState.QUEUED, created=NOW - 100), now=NOW + 30)
    assert states(registry)[3:] == [("", "Running", NOW + 20), ("", "Queued", NOW + 30)]


def test_states_passed_through_in_one_delivery_are_all_reported(registry: Registry) -> None:
    put(
        registry,
        JobRecord(job_id="j", state=JobState.QUEUED, created=NOW),
        JobRecord(job_id="j", state=JobState.RUNNING, start=NOW + 1),
        JobRecord(job_id="j", state=JobState.STOPPED, end=NOW + 2),
    )
    assert states(registry) == [("", "Queued", NOW), ("", "Running", NOW + 1), ("", "Stopped", NOW + 2)]


def test_a_late_opening_reports_nothing(registry: Registry) -> None:
    opening = JobRecord(
        job_id="j",
        state=JobState.RUNNING,
        start=NOW,
        replicas=[ReplicaRecord(name="w", state=JobState.RUNNING, start=NOW)],
    )
    ended = ReplicaRecord(name="w", node="n", state=JobState.FAILED, end=NOW + 5, reason="OOMKilled")
    put(registry, opening)
    put(registry, JobRecord(job_id="j", state=JobState.SUCCEEDED, end=NOW + 6, replicas=[ended]))
    put(registry, opening, now=NOW + 7)
    assert states(registry) == [
        ("", "Running", NOW), ("w", "Running", NOW), ("w", "Failed", NOW + 5), ("", "Succeeded", NOW + 6),
    ]  # fmt: skip
    page = registry.list_events(EventFilter(replicas=frozenset({"w"}), levels=frozenset({Level.ERROR})))
    assert [(event.message, event.node) for event in page.events] == [("OOMKilled", "n")]


def test_a_state_that_a_record_implies_is_reported_as_well(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", start=NOW - 9))
    put(registry, JobRecord(job_id="j", end=NOW - 1, exit_code=3))
    assert states(registry) == [("", "Running", NOW - 9), ("", "Failed", NOW - 1)]


def test_samples_report_once_that_a_job_runs(registry: Registry) -> None:
    registry.observe([OBSERVED, replace(OBSERVED, replica="v", first_ms=NOW - 3)], NOW + 9)
    registry.observe(
        [replace(OBSERVED, last_ms=NOW + 99), replace(OBSERVED, replica="late", first_ms=NOW + 50)], NOW + 99
    )
    assert states(registry) == [
        ("", "Running", NOW - 3), ("v", "Running", NOW - 3), ("w", "Running", NOW), ("late", "Running", NOW + 50),
    ]  # fmt: skip
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING, start=NOW - 90))
    put(registry, JobRecord(job_id="j", state=JobState.SUCCEEDED, end=NOW + 100))
    assert states(registry)[4:] == [("", "Succeeded", NOW + 100)]


def test_samples_of_a_recorded_job_report_nothing_that_is_not_new(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING, start=NOW), JobRecord(job_id="i", created=NOW))
    registry.observe([replace(OBSERVED, replica=""), replace(OBSERVED, job="i", replica="")], NOW + 9)
    assert (states(registry), states(registry, "i")) == (
        [("", "Running", NOW)],
        [("", "Queued", NOW), ("", "Running", NOW)],
    )


def test_a_refused_record_leaves_no_event(registry: Registry) -> None:
    jobs = [JobRecord(job_id="ok", state=JobState.RUNNING), JobRecord(job_id="j", extra={"foas": {"k": "x" * 2**18}})]
    with pytest.raises(InvalidRequestError):
        registry.record("default", Records(jobs=jobs, events=[EVENT]), NOW)
    assert registry.list_events(EventFilter()).total == 0


def test_events_go_with_their_job(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", start=NOW), JobRecord(job_id="k", start=NOW))
    record_events(registry, EVENT)
    record_events(registry, EVENT, project="p")
    registry.delete_job("default", "j")
    left = registry.list_events(EventFilter()).events
    assert [(event.project, event.job) for event in left] == [("default", "k"), ("p", "j")]


def test_a_job_keeps_its_newest_events(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events_module, "MAX_EVENTS", 20)
    order = list(range(50))
    random.Random(5).shuffle(order)
    record_events(registry, *(msgspec.structs.replace(EVENT, job="other", time=NOW - n) for n in range(20)))
    assert registry.events_dropped == 0
    for first in range(0, 50, 10):
        record_events(
            registry,
            *(msgspec.structs.replace(EVENT, time=NOW + n // 2, message=str(n)) for n in order[first : first + 10]),
        )
    page = registry.list_events(EventFilter(jobs=("j",), limit=100))
    assert [event.time for event in page.events] == [NOW + n // 2 for n in range(30, 50)]
    assert registry.events_dropped == 30
    assert registry.list_events(EventFilter(jobs=("other",))).total == 20
    assert any("j of project default" in message for message in caplog.messages)


def test_old_events_of_nodes_and_of_nobody_are_pruned(registry: Registry) -> None:
    registry.set_retention("p", Retention(hour_days=10))
    for project in ("p", "q"):
        registry.record(project, Records(jobs=[JobRecord(job_id="j", created=NOW - 800 * DAY)]), NOW)
        for days in (5, 20, 800):
            events = [
                EventRecord(time=NOW - days * DAY, node="n", source=EventSource.NODE, reason=str(days)),
                EventRecord(time=NOW - days * DAY, job="gone", reason=str(days)),
                EventRecord(time=NOW - days * DAY, job="j", reason=str(days)),
            ]
            record_events(registry, *events, project=project)
    assert registry.prune(NOW) == 4 + 2
    assert registry.prune(NOW) == 0
    stored_events = registry.list_events(EventFilter(limit=100)).events
    assert sorted((e.project, e.job, e.reason) for e in stored_events if e.source is not EventSource.STATE) == [
        ("p", "", "5"), ("p", "gone", "5"), ("p", "j", "20"), ("p", "j", "5"), ("p", "j", "800"),
        ("q", "", "20"), ("q", "", "5"), ("q", "gone", "20"), ("q", "gone", "5"),
        ("q", "j", "20"), ("q", "j", "5"), ("q", "j", "800"),
    ]  # fmt: skip
