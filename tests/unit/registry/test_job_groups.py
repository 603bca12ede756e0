"""Tests of the resource groups of jobs, against a count in Python."""

import random
from typing import Any

from jobmeter.model.record import JobRecord, Records
from jobmeter.model.time import MINUTE

NOW = 1_767_225_600_000


def write(choose, registry, left):
    """Write 80 jobs of two projects, some of them twice, and delete some. ``left`` receives the remaining ones."""
    for number in range(80):
        project, name = choose.choice(["a", "b"]), f"j{number}"
        for _ in range(choose.choice([1, 1, 2])):
            now_ms = NOW + choose.randrange(1_000)
            fields = {
                "resource_group": choose.choice(["", "rg", "rg-2", "\u00e4"]),
                "workspace": choose.choice(["", "w1", "w2"]),
            }
            created = NOW - number * MINUTE
            registry.record(project, Records(jobs=[JobRecord(job_id=name, created=created, **fields)]), now_ms)
            left.add((project, name))
        if choose.random() < 0.1:
            registry.delete_job(project, name)
            left.remove((project, name))


def test_the_groups_of_jobs(registry):
    choose = random.Random(32)
    jobs: set[tuple[str, str]] = set()
    for _ in range(2):
        write(choose, registry, jobs)
        stored = {
            (project, job): next(iter(registry.find_job_head(frozenset({project}), job, NOW))) for project, job in jobs
        }
        for projects in (None, frozenset({"a"}), frozenset({"a", "b", "c"}), frozenset({"c"}), frozenset()):
            expected: dict[tuple[str, str], list[Any]] = {}
            for (project, _), job in stored.items():
                if job.resource_group and (projects is None or project in projects):
                    expected.setdefault((project, job.resource_group), []).append(job)
            found = registry.list_job_groups(projects)
            assert [(one.project, one.name) for one in found] == sorted(expected)
            for one in found:
                own = expected[one.project, one.name]
                assert one.jobs == len(own)
                assert one.workspaces == tuple(sorted({job.workspace for job in own} - {""}))
                assert (one.created, one.updated) == (min(job.created for job in own), max(job.updated for job in own))
