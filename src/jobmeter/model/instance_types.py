"""Instance types, collected from jobs: no other source lists them."""

from collections.abc import Iterable

from jobmeter.model.job import InstanceType, Job

MOST_JOBS = 1_000
"""Newest jobs whose types are listed."""


def make_type_id(kind: InstanceType) -> str:
    """Return the id of an instance type, else its name; empty for a type that has neither."""
    return kind.id or kind.name


def collect_named_types(jobs: Iterable[Job]) -> list[tuple[InstanceType, Job]]:
    """Collect the instance types of jobs, each with the first job that names it, sorted by id."""
    found: dict[str, tuple[InstanceType, Job]] = {}
    for job in jobs:
        if job.instance_type is not None and make_type_id(job.instance_type):
            found.setdefault(make_type_id(job.instance_type), (job.instance_type, job))
    return [found[name] for name in sorted(found)]
