"""Reads the stored allocations of a job, past the registry's caches."""

from jobmeter.model.job import Allocation
from jobmeter.registry import jobs
from jobmeter.registry.base import Registry
from jobmeter.registry.rows import make_job


def list_allocations(registry: Registry, project: str, job: str) -> list[Allocation]:
    """Return the allocations of one job, ordered by start."""
    with registry.database.read() as connection:
        # Ask for a time before every record, so that devices of a job without records do not count as ended.
        heads = [make_job(row, 0) for row in jobs.read_job_rows(connection, frozenset({project}), job)]
        return [allocation for head in heads for allocation in jobs.read_job_allocations(connection, head)]
