"""Tests of the jobs of a resource group in a range, against reading each job separately."""

import random

import pytest
from tests.support.registries import observation

from jobmeter.model.job import JobState
from jobmeter.model.record import AllocationRecord, JobRecord, Records, ReplicaRecord
from jobmeter.model.time import MINUTE, TimeRange

NOW = 1_767_225_600_000
SPAN = TimeRange(NOW - 10 * MINUTE, NOW - 5 * MINUTE)


def _ids(views):
    return [(view.job.project, view.job.id) for view in views]


@pytest.mark.parametrize(
    ("fields", "there"),
    [
        pytest.param({}, True, id="waits to begin"),
        pytest.param({"start": NOW - 20 * MINUTE, "state": JobState.RUNNING}, True, id="runs"),
        pytest.param({"start": NOW - 5 * MINUTE, "state": JobState.RUNNING}, False, id="began at the end"),
        pytest.param({"start": NOW - 5 * MINUTE - 1, "state": JobState.RUNNING}, True, id="began just before the end"),
        pytest.param({"start": 1, "end": NOW - 10 * MINUTE}, True, id="ended at the start"),
        pytest.param({"start": 1, "end": NOW - 10 * MINUTE - 1}, False, id="ended before"),
        pytest.param({"start": 1, "state": JobState.RUNNING, "resource_group": "other"}, False, id="another group"),
    ],
)
def test_a_job_is_reported_where_its_life_meets_the_range(registry, fields, there):
    record = JobRecord(**{"job_id": "j1", "resource_group": "rg", **fields})
    registry.record("p", Records(jobs=[record]), NOW)
    assert _ids(registry.group_jobs(frozenset({"p"}), "rg", SPAN, NOW)) == ([("p", "j1")] if there else [])


@pytest.mark.parametrize(("before_ms", "there"), [(4 * MINUTE, True), (5 * MINUTE, True), (6 * MINUTE, False)])
def test_what_has_only_samples_lives_on_for_five_minutes(registry, before_ms, there):
    registry.record("p", Records(jobs=[JobRecord(job_id="j1", resource_group="rg")]), NOW)
    last = SPAN.start_ms - before_ms
    observed = observation(last - MINUTE, last, project="p", job="j1", replica="a")
    registry.observe([observed], NOW)
    assert any(True for _ in registry.group_jobs(None, "rg", SPAN, NOW)) is there


def test_projects_and_what_belongs_to_a_job(registry):
    chance = random.Random(3)
    names = [f"j{number}" for number in range(30)]
    for project in ("a", "b"):
        jobs = [
            JobRecord(
                job_id=name,
                resource_group=chance.choice(["rg", "other"]),
                user=chance.choice(["u", "v"]),
                start=NOW - chance.randrange(60) * MINUTE,
                state=JobState.RUNNING,
                limits={"cpu": 2.0},
                replicas=[ReplicaRecord(name=f"worker-{at}", node=f"n{at}") for at in range(chance.randrange(12))],
                allocations=[
                    AllocationRecord(replica="worker-0", node="n0", device=f"gpu{at}", start=NOW - at * MINUTE)
                    for at in range(chance.randrange(12))
                ],
            )
            for name in names
        ]
        registry.record(project, Records(jobs=jobs), NOW)
    for projects in (None, frozenset({"a"}), frozenset({"a", "b"}), frozenset({"c"}), frozenset()):
        alone = [view for name in names for view in registry.find_job(projects, name, NOW)]
        expected = {
            (view.job.project, view.job.id): view
            for view in alone
            if view.job.resource_group == "rg" and view.job.start < SPAN.end_ms
        }
        found = list(registry.group_jobs(projects, "rg", SPAN, NOW))
        assert _ids(found) == sorted(expected)
        for view in found:
            own = expected[view.job.project, view.job.id]
            assert (view.job, view.replicas) == (own.job, own.replicas)
            met = [one for one in own.allocations if one.start < SPAN.end_ms]
            assert sorted(view.allocations, key=str) == sorted(met, key=str)
