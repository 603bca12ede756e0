"""Ends of jobs by series. PromQL ends a series with its job, although no sample marks the end."""

from collections.abc import Sequence

from jobmeter.model.batch import NEVER, SeriesKeys
from jobmeter.model.job import Job, JobFilter, JobState
from jobmeter.model.series import Series
from jobmeter.query.defaults import find_end
from jobmeter.query.series import list_owners
from jobmeter.registry.base import Registry

_FEW = 8
"""Largest number of jobs that are read one by one, from memory where possible."""
_FINISHED = frozenset(state for state in JobState if state.finished)
_Names = tuple[str, str]


def read_job_ends(registry: Registry, series: Sequence[Series], keys: SeriesKeys, now_ms: int) -> tuple[int, ...]:
    """Return the end of the job of each series, as in ``Samples.ends``. ``keys`` are the keys of the series."""
    names = _names(series, keys)
    if len(names) <= _FEW:
        jobs = [one for project, job in names for one in registry.find_job_head(frozenset({project}), job, now_ms)]
    else:
        projects, ids = frozenset(project for project, _ in names), tuple({job for _, job in names})
        every = JobFilter(projects=projects, ids=ids, states=_FINISHED, limit=len(projects) * len(ids))
        jobs = registry.list_jobs(every, now_ms).jobs
    return _ends(jobs, series)


def get_cached_job_ends(
    registry: Registry, series: Sequence[Series], keys: SeriesKeys, now_ms: int
) -> tuple[int, ...] | None:
    """Return ``read_job_ends`` from memory without waiting; None if memory does not have all jobs."""
    names = _names(series, keys)
    if len(names) > _FEW:
        return None
    jobs: list[Job] = []
    for project, job in names:
        found = registry.memory.get_job_head(frozenset({project}), job, now_ms)
        if found is None:
            return None
        jobs += found
    return _ends(jobs, series)


def _names(series: Sequence[Series], keys: SeriesKeys) -> Sequence[_Names]:
    """Return the distinct projects and ids of the jobs."""
    return [(project, job) for project, job in list_owners(series, keys) if job]


def _ends(jobs: Sequence[Job], series: Sequence[Series]) -> tuple[int, ...]:
    ends = {(job.project, job.id): end for job in jobs if (end := find_end(job)) is not None}
    return tuple([ends.get((one.project, one.job), NEVER) for one in series]) if ends else ()
