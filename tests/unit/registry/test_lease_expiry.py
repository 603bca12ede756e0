"""Tests of leases of runs, lost jobs and restarted jobs, on both databases."""

import pytest
from tests.support.registries import observation

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import EventFilter, EventSource
from jobmeter.model.job import Allocation, Job, JobFilter, JobState, JobView
from jobmeter.model.record import AllocationRecord, JobRecord, Lease, LeaseRecord, Records, ReplicaRecord
from jobmeter.model.time import MINUTE, SECOND
from jobmeter.registry.base import Registry

NOW = 1_790_000_000_000
MINE, OTHER = Lease(owner="mine", seconds=60), Lease(owner="other", seconds=60)
RUNNING, FAILED = JobState.RUNNING, JobState.FAILED


def start(registry: Registry, lease: Lease = MINE, now: int = NOW, attempt: int = 0, **more: object) -> None:
    member = ReplicaRecord(name="w", attempt=attempt, state=RUNNING, start=now, node="n")
    given = {"job_id": "j", "state": RUNNING, "start": now, "created": now, "lease": lease, "replicas": [member]}
    registry.record("p", Records(jobs=[JobRecord(**{**given, **more})]), now)  # type: ignore[arg-type]
    renew(registry, lease, now)


def end(registry: Registry, state: JobState, now: int, attempt: int = 0) -> None:
    code = 0 if state is JobState.SUCCEEDED else 3
    member = ReplicaRecord(name="w", attempt=attempt, state=state, end=now, exit_code=code)
    job = JobRecord(job_id="j", state=state, end=now, exit_code=code, replicas=[member])
    registry.record("p", Records(jobs=[job]), now)


def renew(registry: Registry, lease: Lease, now: int) -> None:
    registry.record("p", Records(leases=[LeaseRecord(job_id="j", lease=lease)]), now)


def lose(registry: Registry, now: int, since: int = 0, least: int = 60 * SECOND) -> int:
    return registry.mark_lost(now, since, least)


def view(registry: Registry, now: int = NOW) -> JobView:
    [found] = registry.find_job(None, "j", now)
    return found


def events_of(registry: Registry, replica: str = "") -> list[tuple[str, int, str]]:
    events = registry.list_events(EventFilter(jobs=("j",), sources=frozenset({EventSource.STATE}))).events
    return [(one.reason, one.time, one.message.partition(":")[0]) for one in events if one.replica == replica]


def test_a_run_that_stopped_renewing_is_lost(registry: Registry) -> None:
    start(registry)
    registry.observe([observation(NOW, NOW + 30 * SECOND, project="p", attempt=0)], NOW + 30 * SECOND)
    renew(registry, MINE, NOW + 40 * SECOND)
    assert lose(registry, NOW + 99 * SECOND) == 0
    assert view(registry).job.state is RUNNING
    assert lose(registry, NOW + 100 * SECOND) == 1
    assert lose(registry, NOW + 900 * SECOND) == 0, "once"
    found = view(registry)
    assert (found.job.state, found.job.error, found.job.end) == (FAILED, "lost", NOW + 30 * SECOND)
    assert [(one.state, one.reason, one.end) for one in found.replicas] == [(FAILED, "lost", NOW + 30 * SECOND)]
    assert events_of(registry) == [("Running", NOW, ""), ("Failed", NOW + 100 * SECOND, "lost")]
    assert registry.list_jobs(JobFilter(states=frozenset({FAILED})), NOW).total == 1


def test_a_lost_run_that_comes_back_goes_on(registry: Registry) -> None:
    start(registry)
    device = AllocationRecord(replica="w", node="n", device="gpu0", start=NOW)
    registry.record("p", Records(jobs=[JobRecord(job_id="j", allocations=[device])]), NOW)
    lose(registry, NOW + 2 * MINUTE)
    assert view(registry).allocations[0].end == NOW
    renew(registry, OTHER, NOW + 3 * MINUTE)
    assert view(registry).job.state is FAILED, "another's renewal says nothing of this run"
    renew(registry, MINE, NOW + 3 * MINUTE)
    found = view(registry)
    assert (found.job.state, found.job.error, found.job.end) == (RUNNING, "", None)
    assert [(one.state, one.reason, one.end) for one in found.replicas] == [(RUNNING, "", None)]
    assert found.allocations == [Allocation(replica="w", node="n", device="gpu0", start=NOW)]
    assert [one[0] for one in events_of(registry)] == ["Running", "Failed", "Running"]
    assert [one[0] for one in events_of(registry, "w")] == ["Running", "Failed", "Running"]
    assert lose(registry, NOW + 5 * MINUTE) == 1


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, FAILED, JobState.STOPPED])
def test_the_end_of_a_run_that_was_taken_for_lost_is_its_end(registry: Registry, state: JobState) -> None:
    start(registry)
    lose(registry, NOW + 2 * MINUTE)
    end(registry, state, NOW + 3 * MINUTE)
    found = view(registry)
    assert (found.job.state, found.job.error, found.job.end) == (state, "", NOW + 3 * MINUTE)
    assert [(one.state, one.reason) for one in found.replicas] == [(state, "")]
    assert lose(registry, NOW + 9 * MINUTE) == 0
    renew(registry, MINE, NOW + 9 * MINUTE)
    assert view(registry).job.state is state, "a renewal does not revive what has ended"


def test_a_record_that_says_nothing_of_its_state_leaves_a_job_lost(registry: Registry) -> None:
    start(registry)
    lose(registry, NOW + 2 * MINUTE)
    registry.record("p", Records(jobs=[JobRecord(job_id="j", name="n")]), NOW + 3 * MINUTE)
    assert (view(registry).job.state, view(registry).job.error) == (FAILED, "lost")


def test_leases_are_counted_from_when_somebody_could_hear(registry: Registry) -> None:
    start(registry)
    assert lose(registry, NOW + 9 * MINUTE, since=NOW + 9 * MINUTE - 59 * SECOND) == 0
    assert lose(registry, NOW + 9 * MINUTE, least=10 * MINUTE) == 0
    assert lose(registry, NOW + 9 * MINUTE, since=NOW + 8 * MINUTE) == 1


def test_a_job_without_a_lease_is_what_its_record_says(registry: Registry) -> None:
    registry.record("p", Records(jobs=[JobRecord(job_id="j", state=RUNNING, start=NOW)]), NOW)
    assert registry.get_lease("p", "j") is None
    renew(registry, MINE, NOW)
    end(registry, JobState.SUCCEEDED, NOW)
    assert registry.get_lease("p", "j") is None
    assert lose(registry, NOW + 99 * MINUTE) == 0
    renew(registry, MINE, NOW + 99 * MINUTE)
    assert (view(registry).job.state, registry.find_job(None, "none", NOW)) == (JobState.SUCCEEDED, [])


def test_more_jobs_than_one_transaction_marks_are_all_lost(registry: Registry) -> None:
    jobs = [JobRecord(job_id=f"j{n}", state=RUNNING, start=NOW, lease=MINE) for n in range(450)]
    registry.record("p", Records(jobs=jobs), NOW)
    assert lose(registry, NOW + 2 * MINUTE) == 450


def test_who_holds_the_lease_of_a_running_job_keeps_it(registry: Registry) -> None:
    start(registry, name="mine")
    assert registry.get_lease("p", "j") == (NOW + MINUTE, "mine")
    with pytest.raises(InvalidRequestError, match="another run has its lease") as refused:
        start(registry, OTHER, NOW + 10 * SECOND, name="other")
    assert refused.value.field == "lease"
    assert (view(registry).job.name, view(registry).job.start) == ("mine", NOW)
    renew(registry, OTHER, NOW + 20 * SECOND)
    assert registry.get_lease("p", "j") == (NOW + MINUTE, "mine")
    start(registry, OTHER, NOW + 2 * MINUTE, attempt=1)
    assert registry.get_lease("p", "j") == (NOW + 3 * MINUTE, "other")


def test_a_lease_that_a_late_record_brought_is_nobodys(registry: Registry) -> None:
    """A record in the spool of a finished run must not block the next run."""
    registry.record("p", Records(jobs=[JobRecord(job_id="j", state=RUNNING, start=NOW, lease=MINE)]), NOW + MINUTE)
    assert registry.get_lease("p", "j") == (NOW + 2 * MINUTE, "")
    start(registry, OTHER, NOW + MINUTE, attempt=1)
    assert registry.get_lease("p", "j") == (NOW + 2 * MINUTE, "other")


def test_the_next_attempt_keeps_what_was_before_it(registry: Registry) -> None:
    start(registry, name="first")
    end(registry, FAILED, NOW + 10)
    start(registry, OTHER, NOW + 1000, attempt=1)
    found = view(registry)
    assert (found.job.name, found.job.state, found.job.start, found.job.created) == ("first", RUNNING, NOW, NOW)
    assert (found.job.end, found.job.exit_code, found.job.error) == (None, None, "")
    end(registry, JobState.SUCCEEDED, NOW + 2000, attempt=1)
    found = view(registry)
    assert (found.job.state, found.job.start, found.job.end) == (JobState.SUCCEEDED, NOW, NOW + 2000)
    assert [(one.attempt, one.state, one.start, one.end, one.exit_code) for one in found.replicas] == [
        (0, FAILED, NOW, NOW + 10, 3),
        (1, JobState.SUCCEEDED, NOW + 1000, NOW + 2000, 0),
    ]
    assert [one[:2] for one in events_of(registry)] == [
        ("Running", NOW), ("Failed", NOW + 10), ("Running", NOW + 1000), ("Succeeded", NOW + 2000),
    ]  # fmt: skip


def test_an_attempt_after_one_that_was_lost_keeps_the_first_start(registry: Registry) -> None:
    start(registry)
    lose(registry, NOW + 2 * MINUTE)
    start(registry, OTHER, NOW + 3 * MINUTE, attempt=1)
    found = view(registry)
    assert (found.job.start, found.job.created, found.job.state) == (NOW, NOW, RUNNING)
    assert [(one.attempt, one.state, one.reason) for one in found.replicas] == [(0, FAILED, "lost"), (1, RUNNING, "")]


def test_an_attempt_that_has_ended_is_never_replaced(registry: Registry) -> None:
    start(registry, name="first")
    end(registry, FAILED, NOW + 10)
    before = view(registry)
    with pytest.raises(InvalidRequestError, match="its next attempt") as refused:
        start(registry, OTHER, NOW + 1000, name="second")
    assert refused.value.field == "replicas.attempt"
    assert view(registry) == before
    start(registry)
    assert view(registry).replicas == before.replicas, "its own opening, delivered once more"


def put(registry: Registry, **more: object) -> Job:
    given = {"name": "w", "node": "n", **more}
    registry.record("p", Records(jobs=[JobRecord(job_id="j", replicas=[ReplicaRecord(**given)])]), NOW)  # type: ignore[arg-type]
    return view(registry).job


def test_a_job_that_an_agent_found_is_never_said_to_wait_nor_to_have_succeeded(registry: Registry) -> None:
    put(registry, start=NOW)
    registry.observe([observation(NOW, NOW + 10, project="p")], NOW + 10)
    assert view(registry, NOW + 10).job.state is RUNNING
    put(registry, start=NOW, end=NOW + 10, state=JobState.UNKNOWN)
    found = view(registry, NOW + 10 * MINUTE)
    assert (found.job.state, found.job.end) == (JobState.UNKNOWN, NOW + 10)
    assert [(one.state, one.end) for one in found.replicas] == [(JobState.UNKNOWN, NOW + 10)]
    assert [one[0] for one in events_of(registry)] == ["Running"]
    assert [one[0] for one in events_of(registry, "w")] == ["Running", "Unknown"]


def test_a_replica_that_goes_on_after_a_pause_keeps_its_first_start(registry: Registry) -> None:
    put(registry, start=NOW)
    put(registry, start=NOW, end=NOW + 10, state=JobState.UNKNOWN)
    put(registry, start=NOW + 90_000)
    [replica] = view(registry).replicas
    assert (replica.start, replica.end, replica.state) == (NOW, None, None)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, FAILED, JobState.STOPPED])
def test_what_somebody_saw_stands_against_who_did_not(registry: Registry, state: JobState) -> None:
    end(registry, state, NOW)
    registry.record("p", Records(jobs=[JobRecord(job_id="j", state=JobState.UNKNOWN, end=NOW + 50)]), NOW + 50)
    put(registry, state=JobState.UNKNOWN, end=NOW + 50)
    found = view(registry)
    assert (found.job.state, found.job.end, found.replicas[0].state) == (state, NOW, state)


def test_an_end_that_nobody_saw_gives_way(registry: Registry) -> None:
    registry.record("p", Records(jobs=[JobRecord(job_id="j", start=NOW - 9, end=NOW)]), NOW)
    assert view(registry).job.state is JobState.UNKNOWN
    registry.record("p", Records(jobs=[JobRecord(job_id="j", exit_code=3)]), NOW)
    assert view(registry).job.state is FAILED
    registry.record("p", Records(jobs=[JobRecord(job_id="i", start=NOW - 9, end=NOW)]), NOW)
    registry.record("p", Records(jobs=[JobRecord(job_id="i", state=RUNNING)]), NOW)
    assert [(one.state, one.end) for one in registry.find_job_head(None, "i", NOW)] == [(RUNNING, None)]
