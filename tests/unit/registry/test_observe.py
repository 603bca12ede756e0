"""Tests of facts derived from samples, on both databases."""

import threading
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.allocations import list_allocations
from tests.support.registries import observation

from jobmeter.model.event import EventFilter
from jobmeter.model.job import AllocationSource, JobFilter, JobState
from jobmeter.model.record import AllocationRecord, JobRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.registry import interval_cache
from jobmeter.registry.base import Registry
from jobmeter.registry.database import Database
from jobmeter.registry.open import open_registry

NOW = 1_790_000_000_000
MINUTE = 60_000


def test_samples_make_job_replica_node_and_allocation(registry: Registry) -> None:
    registry.observe(
        [
            observation(NOW - 500, NOW - 100, device="gpu0"),
            observation(NOW - 900, NOW, device="gpu1"),
            observation(NOW - 50, NOW),
        ],
        NOW,
    )
    [found] = registry.find_job(None, "j", NOW)
    assert (found.job.state, found.job.start, found.job.end, found.job.recorded) == (
        JobState.RUNNING, NOW - 900, NOW, False,
    )  # fmt: skip
    [replica] = found.replicas
    assert (replica.name, replica.node, replica.pod_id, replica.start, replica.end, replica.state) == (
        "w", "n", "j-w", NOW - 900, NOW, JobState.RUNNING,
    )  # fmt: skip
    assert [(a.device, a.start, a.end, a.source) for a in found.allocations] == [
        ("gpu1", NOW - 900, NOW, AllocationSource.IMPORT),
        ("gpu0", NOW - 500, NOW - 100, AllocationSource.IMPORT),
    ]
    assert [(n.name, n.first_seen, n.last_seen) for n in registry.list_nodes(None)] == [("n", NOW - 900, NOW)]


@pytest.mark.parametrize(("age", "state"), [(5 * MINUTE - 1, JobState.RUNNING), (5 * MINUTE, JobState.UNKNOWN)])
def test_the_age_of_the_last_sample_gives_the_state(registry: Registry, age: int, state: JobState) -> None:
    registry.observe([observation(NOW - 10 * MINUTE, NOW)], NOW)
    later = NOW + age
    assert registry.find_job_head(None, "j", later)[0].state == state
    assert [job.id for job in registry.list_jobs(JobFilter(states=frozenset({state})), later).jobs] == ["j"]
    others = frozenset(JobState) - {state}
    assert registry.list_jobs(JobFilter(states=others), later).total == 0


def test_any_order_of_batches_gives_the_same_intervals(registry: Registry) -> None:
    batches = [
        observation(NOW, NOW + 60_000, device="gpu0"),
        observation(NOW + 75_000, NOW + 135_000, device="gpu0"),
        observation(NOW + 150_000, NOW + 160_000, device="gpu0"),
        observation(NOW + 10_000_000, NOW + 10_060_000, device="gpu0"),
    ]
    for number, order in enumerate(permutations(batches)):
        job = f"j{number}"
        for batch in order:
            registry.observe([observation(batch.first_ms, batch.last_ms, device="gpu0", job=job)], NOW)
        intervals = [(a.start, a.end) for a in list_allocations(registry, "default", job)]
        assert intervals == [(NOW, NOW + 160_000), (NOW + 10_000_000, NOW + 10_060_000)], order


def test_saying_it_again_changes_nothing(registry: Registry) -> None:
    batch = [observation(NOW - 1000, NOW, device=f"gpu{number}", replica=f"w{number}") for number in range(8)]
    registry.observe(batch, NOW)
    before = registry.find_job(None, "j", NOW)
    registry.observe(batch, NOW + 1)
    registry.observe(batch[2:4], NOW + 2)
    assert registry.find_job(None, "j", NOW) == before


def test_samples_without_a_job_show_a_node_alone(registry: Registry) -> None:
    registry.observe([observation(1000, 2000, job="", replica="", cluster="c")], NOW)
    assert registry.list_jobs(JobFilter(), NOW).total == 0
    assert [(n.cluster, n.name) for n in registry.list_nodes(frozenset({"default"}))] == [("c", "n")]
    registry.observe([], NOW)


def test_a_recorded_job_keeps_what_was_recorded(registry: Registry) -> None:
    record = JobRecord(job_id="j", name="x", state=JobState.SUCCEEDED, start=NOW - 100, end=NOW, replicas=["w"])
    registry.record("default", Records(jobs=[record]), NOW)
    registry.observe([observation(NOW - 5000, NOW + 5000, node="n2", cluster="c")], NOW)
    [found] = registry.find_job(None, "j", NOW)
    assert (found.job.name, found.job.state, found.job.start, found.job.end) == (
        "x", JobState.SUCCEEDED, NOW - 100, NOW,
    )  # fmt: skip
    assert (found.job.first_sample, found.job.last_sample) == (NOW - 5000, NOW + 5000)
    assert (found.replicas[0].node, found.replicas[0].cluster, found.replicas[0].start) == ("n2", "c", NOW - 5000)


def test_a_recorded_job_without_start_takes_its_first_sample(registry: Registry) -> None:
    registry.observe([observation(NOW - 5000, NOW)], NOW)
    registry.record("default", Records(jobs=[JobRecord(job_id="j", state=JobState.RUNNING)]), NOW)
    job = registry.find_job_head(None, "j", NOW)[0]
    assert (job.start, job.end, job.state, job.recorded) == (NOW - 5000, None, JobState.RUNNING, True)
    hours_later = NOW + 3_600_000
    assert registry.find_job_head(None, "j", hours_later)[0].state == JobState.RUNNING


def test_a_finished_job_without_end_takes_its_last_sample(registry: Registry) -> None:
    registry.observe([observation(NOW - 5000, NOW - 10)], NOW)
    registry.record("default", Records(jobs=[JobRecord(job_id="j", state=JobState.FAILED)]), NOW)
    assert registry.find_job_head(None, "j", NOW)[0].end == NOW - 10


def test_a_recorded_node_of_a_replica_stands(registry: Registry) -> None:
    registry.record("default", Records(jobs=[JobRecord(job_id="j", replicas=[ReplicaRecord(name="w", node="a")])]), NOW)
    registry.observe([observation(1, 2, node="b")], NOW)
    assert registry.find_job(None, "j", NOW)[0].replicas[0].node == "a"


def test_two_writers_at_once_lose_nothing(url: str) -> None:
    opened = [open_registry(url, Retention()) for _ in range(2)]
    errors: list[BaseException] = []

    def write(registry: Registry, offset: int) -> None:
        try:
            for step in range(15):
                time = NOW + (2 * step + offset) * 1000
                batch = [observation(time, time + 500, job=f"j{job}", device="gpu0") for job in range(6)]
                registry.observe(batch if offset else batch[::-1], NOW)
        except BaseException as error:  # noqa: BLE001 - the main thread fails the test with it
            errors.append(error)

    threads = [threading.Thread(target=write, args=(registry, offset)) for offset, registry in enumerate(opened)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for job in range(6):
        assert [(a.start, a.end) for a in list_allocations(opened[0], "default", f"j{job}")] == [(NOW, NOW + 29_500)]
    for registry in opened:
        registry.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Registry, Registry]]:
    """Yield two registries that receive the same observations."""
    first, second = (Registry(Database(f"sqlite:///{tmp_path / name}"), Retention()) for name in ("one", "two"))
    yield first, second
    first.close()
    second.close()


steps = st.lists(
    st.tuples(st.sampled_from(("a", "b")), st.integers(0, 40), st.integers(0, 3), st.sampled_from(("gpu0", "gpu1"))),
    max_size=6,
)


def write(registry: Registry, batch: list[tuple[str, int, int, str]] | str) -> None:
    if batch == "delete":
        registry.delete_job("default", "a")
    elif isinstance(batch, str):
        allocation = AllocationRecord(replica="w", node="n", device="gpu0", start=NOW - 1000, source="import")
        registry.record("default", Records(jobs=[JobRecord(job_id="a", allocations=[allocation])]), NOW)
    else:
        registry.observe(
            [
                observation(NOW + minute * MINUTE, NOW + (minute + long) * MINUTE, job=job, device=name)
                for job, minute, long, name in batch
            ],
            NOW,
        )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.one_of(steps, st.sampled_from(("delete", "record"))), max_size=8))
def test_what_is_remembered_of_devices_changes_nothing(
    pair: tuple[Registry, Registry], batches: list[list[tuple[str, int, int, str]] | str]
) -> None:
    for job in "ab":
        for one in pair:
            one.delete_job("default", job)
    for batch in batches:
        for one, most in zip(pair, (interval_cache.MOST, 0), strict=True):
            with patch.object(interval_cache, "MOST", most):
                write(one, batch)
        for job in "ab":
            expected = EventFilter(jobs=(job,))
            views, happened = zip(
                *((one.find_job(None, job, NOW), one.list_events(expected)) for one in pair), strict=True
            )
            assert views[0] == views[1]
            assert happened[0] == happened[1]


def test_an_earlier_interval_that_comes_to_reach_a_later_one_is_joined_with_it(registry: Registry) -> None:
    def see(*minutes: int) -> list[tuple[int, int]]:
        registry.observe(
            [observation(NOW + at * MINUTE, NOW + at * MINUTE, job="a", device="gpu0") for at in minutes], NOW
        )
        found = [(one.start, one.end or 0) for one in list_allocations(registry, "default", "a")]
        return [((start - NOW) // MINUTE, (end - NOW) // MINUTE) for start, end in found]

    assert see(0) == [(0, 0)]
    assert see(3) == [(0, 3)]
    assert see(10, 36) == [(0, 3), (10, 10), (36, 36)]
    assert see(6) == [(0, 10), (36, 36)]


def test_a_row_that_went_behind_our_back_is_made_again(registry: Registry) -> None:
    assert isinstance(registry, Registry)
    for minute in range(3):
        registry.observe([observation(NOW + minute * MINUTE, NOW + (minute + 1) * MINUTE, job="a", device="gpu0")], NOW)
    with registry.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM allocations")
    registry.observe([observation(NOW + 200_000, NOW + 240_000, job="a", device="gpu0")], NOW)
    assert [(one.start, one.end) for one in list_allocations(registry, "default", "a")] == [
        (NOW + 200_000, NOW + 240_000)
    ]
