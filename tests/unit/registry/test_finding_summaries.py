"""Tests of the finding summaries in a listing of many jobs."""

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobmeter.diagnose.finding_events import add_reported, make_end_event, make_opening, read_reported_findings
from jobmeter.model.event import LEVEL_OF, EventFilter, EventSource, EventType
from jobmeter.model.finding import Finding, FindingRole, FindingSummary, Severity, Subject, extend_sentence
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.model.record import EventRecord, JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import HOUR, SECOND
from jobmeter.registry.base import Registry
from jobmeter.registry.database import Database
from jobmeter.registry.finding_summaries import MOST

NOW = 1_790_000_000_000


def found(job, rule, severity, at=0, **fields):
    message = f"{rule} (job {job}): {at} s"
    level = LEVEL_OF[severity]
    return EventRecord(time=NOW + at, job=job, reason="Finding", level=level, **{"message": message, **fields})


def summary(job, severity, rules, count=1, **more):
    return FindingSummary(id=job, project="p", severity=severity, count=count, rules=rules, **more)


def a_finding(rule, severity, subject=("replica", "worker-0"), sentence="worker-0 (n1): it is so", start=NOW - 90_000):
    return Finding(
        rule=rule, role=FindingRole.ROOT, severity=severity, confidence=0.9, subject=Subject(*subject),
        start=start, end=NOW, evidence=[], advice="", source="", sentence=sentence,
    )  # fmt: skip


@pytest.fixture
def registry(url: str):
    made = Registry(Database(url), Retention())
    yield made
    made.close()


def store(registry, *events, project="p"):
    jobs = [JobRecord(job_id=name, created=NOW) for name in dict.fromkeys(event.job for event in events)]
    registry.record(project, Records(jobs=jobs, events=list(events)), NOW)


def test_the_worst_comes_first_and_each_job_has_its_own(registry):
    store(
        registry,
        found("both", "gpu_idle", Severity.INFO, 3),
        found("both", "straggler", Severity.CRITICAL, 1),
        found("both", "cpu_throttled", Severity.WARNING, 2),
        found("one", "gpu_idle", Severity.WARNING),
        EventRecord(time=NOW, job="noise", reason="Finished", message="gpu_idle (job noise): no finding"),
    )
    store(registry, found("both", "xid", Severity.WARNING), project="q")
    listed = registry.list_findings([("p", "both"), ("p", "one"), ("p", "noise"), ("p", "none")])
    rules = ["straggler", "cpu_throttled", "gpu_idle"]
    assert {one.id: one for one in listed} == {
        "both": summary("both", Severity.CRITICAL, rules, sentence="1 s", start=NOW + 1, count=3),
        "one": summary("one", Severity.WARNING, ["gpu_idle"], sentence="0 s", start=NOW),
    }
    assert [one.rules for one in registry.list_findings([("q", "both")])] == [["xid"]]
    assert registry.list_findings([]) == []


def test_one_that_opens_again_counts_once_and_one_of_another_subject_too(registry):
    again = [
        found("j", "rank_lost", Severity.WARNING, at, message=f"rank_lost (replica worker-0): for {at} s")
        for at in range(5)
    ]
    other = found("j", "rank_lost", Severity.WARNING, 9, message="rank_lost (replica worker-1): for 9 s")
    store(registry, *again, other)
    (one,) = registry.list_findings([("p", "j")])
    assert (one.count, one.rules) == (2, ["rank_lost"])


def test_what_is_no_finding_of_ours_is_none(registry):
    store(registry, found("odd", "x", Severity.WARNING, message="!!"), found("odd", "y", Severity.INFO, message=""))
    state = EventRecord(time=NOW, job="odd", reason="Finding", message="rule (job odd): x", source=EventSource.REPLICA)
    registry.record("p", Records(events=[state]), NOW)
    (one,) = registry.list_findings([("p", "odd")])
    assert (one.count, one.rules) == (1, ["rule"])


def test_a_job_with_very_many_leaves_room_for_the_others(registry):
    many = [
        found("many", "xid", Severity.INFO, n, message=f"xid (device node-{n}/gpu0): seen") for n in range(MOST + 50)
    ]
    store(registry, *many, found("many", "straggler", Severity.CRITICAL), found("one", "gpu_idle", Severity.INFO))
    listed = {one.id: one for one in registry.list_findings([("p", "many"), ("p", "one")])}
    assert (listed["many"].count, listed["many"].rules) == (MOST, ["straggler", "xid"])
    assert listed["one"].rules == ["gpu_idle"]


RULES = {
    "straggler_gpu": Severity.WARNING,
    "hang_hw": Severity.CRITICAL,
    "xid": Severity.CRITICAL,
    "gpu_idle_allocated": Severity.WARNING,
}
MEMBERS = [("replica", "worker-0"), ("device", "n1/gpu0"), ("device", "n1/gpu1"), ("replica", "odd): name (x")]
STEPS = st.tuples(
    st.sampled_from(sorted(RULES)), st.sampled_from(MEMBERS), st.booleans(), st.integers(NOW - HOUR, NOW - SECOND)
)
NUMBERS = count()


@given(steps=st.lists(STEPS, max_size=20))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_worst_open_finding_comes_first_and_filters_agree(registry, steps):
    """Findings open and close in any order. A listing shows, counts and filters the open ones.

    The report of the job begins with the same finding.
    """
    job = f"job-{next(NUMBERS)}"
    open_now, ever, events = {}, {}, [EventRecord(time=NOW - 1, job=job, reason="Submitted", message="x")]
    for at, (rule, subject, opens, start) in enumerate(steps):
        severity = RULES[rule]
        one = a_finding(rule, severity, subject, f"{subject[1]}: {rule} at {at}", start)
        key = rule, subject
        if opens and key not in open_now:
            events.append(make_opening("p", job, one, NOW + at))
            open_now[key] = ever[key] = (-list(Severity).index(severity), start // SECOND, rule)
        elif not opens and key in open_now:
            events.append(make_end_event("p", job, (rule, one.subject), NOW + at, NOW))
            del open_now[key]
    store(registry, *events)
    listed = registry.list_findings([("p", job)])
    assert len(listed) == bool(ever)
    for one in listed:
        worst = min((open_now or ever).values())
        assert (one.open, one.count) == (len(open_now), len(ever))
        first = (-list(Severity).index(one.severity), (one.start or 0) // SECOND, one.rules[0])
        assert first == worst
        stored = registry.list_events(EventFilter(jobs=(job,), types=frozenset({EventType.FINDING}), limit=100)).events
        report = add_reported([], read_reported_findings(stored), NOW + HOUR, running=True)
        assert list(dict.fromkeys(found.rule for found in report)) == one.rules
        assert report[0].severity is one.severity
        assert one.idle_devices == sum(rule == "gpu_idle_allocated" for rule, _ in open_now)

    def matching(value, field="open_finding"):
        return registry.list_jobs(
            JobFilter(ids=(job,), conditions=(Condition(field, Operator.IN, (value,)),)), NOW
        ).total

    assert matching("/") == bool(open_now)
    assert matching("/", "finding") == bool(ever)
    for severity in Severity:
        assert matching(f"{severity}/") == any(RULES[rule] is severity for rule, _ in open_now)
    for rule in ("hang_hw", "xid", "gpu_idle_allocated"):
        assert matching(f"/{rule}") == any(key[0] == rule for key in open_now)


def test_the_idle_devices_of_a_finding_that_stands_for_many_are_counted(registry):
    sentence = extend_sentence(
        "worker-0 (n1, gpu0) has computed nothing for 20 min: utilization is 0.1 %", 23, "device"
    )
    idle = a_finding("gpu_idle_allocated", Severity.WARNING, ("job", "j"), sentence)
    store(registry, make_opening("p", "j", idle, NOW))
    assert [one.idle_devices for one in registry.list_findings([("p", "j")])] == [24]
