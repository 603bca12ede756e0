"""What a listing shows of the findings of many jobs."""

import pytest

from jobmeter.model.event import LEVEL_OF, EventSource
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.model.record import EventRecord, JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.database import Database
from jobmeter.registry.finding_summaries import MOST
from jobmeter.registry.sql import SqlRegistry

NOW = 1_790_000_000_000


def found(job, rule, severity, at=0, **fields):
    message = f"{rule} (job {job}): {at} s"
    level = LEVEL_OF[severity]
    return EventRecord(time=NOW + at, job=job, reason="Finding", level=level, **{"message": message, **fields})


@pytest.fixture
def registry(url: str):
    made = SqlRegistry(Database(url), Retention())
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
    listed = registry.findings([("p", "both"), ("p", "one"), ("p", "noise"), ("p", "none")])
    rules = ["straggler", "cpu_throttled", "gpu_idle"]
    assert {one.id: one for one in listed} == {
        "both": FindingSummary(id="both", project="p", severity=Severity.CRITICAL, count=3, rules=rules),
        "one": FindingSummary(id="one", project="p", severity=Severity.WARNING, count=1, rules=["gpu_idle"]),
    }
    assert [one.rules for one in registry.findings([("q", "both")])] == [["xid"]]
    assert registry.findings([]) == []


def test_one_that_opens_again_counts_once_and_one_of_another_subject_too(registry):
    again = [
        found("j", "rank_lost", Severity.WARNING, at, message=f"rank_lost (replica worker-0): for {at} s")
        for at in range(5)
    ]
    other = found("j", "rank_lost", Severity.WARNING, 9, message="rank_lost (replica worker-1): for 9 s")
    store(registry, *again, other)
    (one,) = registry.findings([("p", "j")])
    assert (one.count, one.rules) == (2, ["rank_lost"])


def test_what_is_no_finding_of_ours_is_none(registry):
    store(registry, found("odd", "x", Severity.WARNING, message="!!"), found("odd", "y", Severity.INFO, message=""))
    state = EventRecord(time=NOW, job="odd", reason="Finding", message="rule (job odd): x", source=EventSource.REPLICA)
    registry.record("p", Records(events=[state]), NOW)
    (one,) = registry.findings([("p", "odd")])
    assert (one.count, one.rules) == (1, ["rule"])


def test_a_job_with_very_many_leaves_room_for_the_others(registry):
    many = [
        found("many", "xid", Severity.INFO, n, message=f"xid (device node-{n}/gpu0): seen") for n in range(MOST + 50)
    ]
    store(registry, *many, found("many", "straggler", Severity.CRITICAL), found("one", "gpu_idle", Severity.INFO))
    listed = {one.id: one for one in registry.findings([("p", "many"), ("p", "one")])}
    assert (listed["many"].count, listed["many"].rules) == (MOST, ["straggler", "xid"])
    assert listed["one"].rules == ["gpu_idle"]
