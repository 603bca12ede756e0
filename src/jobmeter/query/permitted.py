"""Listings for keys whose policies allow single resources: what they do not show is left out, and not counted."""

from collections.abc import Iterator

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.errors import ForbiddenError, LimitExceededError, NotFoundError
from jobmeter.model.job import Job, JobFilter, JobPage
from jobmeter.query.subjects import shown
from jobmeter.registry.base import Registry

MOST_CHECKED, MOST_VIEWED = 100_000, 5_000
"""Most jobs that a listing checks; and where policies name clusters, so that each job's view is read."""
_PAGE = 1_000


def permitted_jobs(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> JobPage:
    """The page of those jobs that the scope permits. Raises LimitExceededError where too many have to be checked."""
    found = list(_every(registry, question, scope, now_ms))
    return JobPage(found[question.offset : question.offset + question.limit], len(found))


def _every(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> Iterator[Job]:
    deep = scope.grant is not None and scope.grant.clusters
    most = MOST_VIEWED if deep else MOST_CHECKED
    offset = 0
    while True:
        page = registry.jobs(msgspec.structs.replace(question, offset=offset, limit=_PAGE), now_ms)
        if page.total > most:
            raise LimitExceededError(
                f"the key's policies allow some resources only, and {page.total} jobs would have to be looked "
                f"at, which is more than {most}: narrow the question",
                "limit",
            )
        for job in page.jobs:
            views = registry.job(frozenset({job.project}), job.id, now_ms) if deep else ()
            if any(shown(view, scope) for view in views) if deep else scope.shows(job):
                yield job
        offset += len(page.jobs)
        if not page.jobs or offset >= page.total:
            return


def check_named(
    registry: Registry, projects: frozenset[str] | None, jobs: tuple[str, ...], scope: Scope, now_ms: int
) -> None:
    """Raises ForbiddenError where no jobs are named, NotFoundError for one that the scope does not show."""
    if not jobs:
        raise ForbiddenError("the key's policies allow some resources only: name the jobs whose events are queried")
    for name in jobs:
        views = registry.job(projects, name, now_ms)
        if not views or not all(shown(view, scope) for view in views):
            raise NotFoundError(f"there is no job {name!r}", "job", name)
