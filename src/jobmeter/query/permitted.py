"""Listings for a key whose policies allow some resources of a project alone: the jobs that they permit, and no others.

Totals, newest members and sums are those of the permitted jobs, as if no other job existed.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import ForbiddenError, LimitExceededError, NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobPage, Node, Operator, Project
from jobmeter.model.log_tree import LogQuery, Property
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.query.defaults import job_created
from jobmeter.query.subjects import shown
from jobmeter.registry.base import Registry

MOST_CHECKED, MOST_VIEWED = 100_000, 5_000
"""Most jobs that a listing checks; and where policies name clusters, so that each job's view is read."""
_PAGE = 1_000
_MOST_ABOUT = 256
"""Newest jobs of a node whose lines in its system log are read, where policies allow some jobs alone."""
_NO_TIME = TimeRange(0, 0)

JobName = tuple[str, str]
"""A job, by (project, id)."""


def permitted_jobs(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> JobPage:
    """Return the page of those jobs that the policies of a key permit; others are left out, and not counted.

    Raises LimitExceededError where too many have to be checked.
    """
    if scope.grant is None:
        return registry.jobs(question, now_ms)
    found = list(_every(registry, question, scope, now_ms))
    return JobPage(found[question.offset : question.offset + question.limit], len(found))


def permitted_names(registry: Registry, jobs: Iterable[JobName], scope: Scope, now_ms: int) -> AbstractSet[JobName]:
    """Return the names of those jobs that lie inside of the scope, and exist where policies narrow it.

    Raises LimitExceededError where too many have to be checked.
    """
    names = {name for name in jobs if scope.allows(*name)}
    if scope.grant is None or not names:
        return names
    projects, ids = frozenset(project for project, _ in names), tuple(sorted({job for _, job in names}))
    found = _every(registry, JobFilter(projects=projects, ids=ids), scope, now_ms)
    return names & {(job.project, job.id) for job in found}


def permitted_series(registry: Registry, series: Sequence[Series], scope: Scope, now_ms: int) -> Sequence[Series]:
    """Return the series that belong to no job, or to one that lies inside of the scope.

    Raises LimitExceededError where too many jobs have to be checked.
    """
    if scope.grant is None:
        return series
    jobs = permitted_names(registry, ((one.project, one.job) for one in series if one.job), scope, now_ms)
    return [one for one in series if not one.job or (one.project, one.job) in jobs]


def permitted_projects(
    registry: Registry, names: frozenset[str] | None, scope: Scope, now_ms: int
) -> Sequence[Project]:
    """Return the projects of which a key's policies permit the whole or some job, as if there were no other jobs."""
    found = registry.projects(names, now_ms)
    if scope.grant is None:
        return found
    shown: list[Project] = []
    for one in found:
        newest, oldest = (
            next(_every(registry, JobFilter(projects=frozenset({one.name}), descending=down), scope, now_ms), None)
            for down in (True, False)
        )
        if newest is not None or scope.grant.shows(one.name):
            created = None if oldest is None else job_created(oldest)
            shown.append(Project(name=one.name, created=created, latest=newest))
    return shown


def permitted_about(registry: Registry, nodes: Sequence[Node], scope: Scope, now_ms: int) -> LogQuery | None:
    """Return the condition that leaves out lines of nodes' system logs about jobs outside of the scope; None: none are.

    Of jobs inside of it, the lines about the newest 256 are found.
    """
    if scope.grant is None:
        return None
    on_nodes = Condition("node", Operator.IN, tuple(sorted({node.name for node in nodes})))
    question = JobFilter(projects=frozenset(node.project for node in nodes), conditions=(on_nodes,), limit=_MOST_ABOUT)
    jobs = permitted_jobs(registry, question, scope, now_ms).jobs
    return Property("job", ("", *sorted({job.id for job in jobs})))


def _every(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> Iterator[Job]:
    deep = scope.grant is not None and scope.grant.clusters
    most = MOST_VIEWED if deep else MOST_CHECKED
    offset = 0
    while True:
        page = registry.jobs(replace(question, offset=offset, limit=_PAGE), now_ms)
        if page.total > most:
            raise LimitExceededError(
                f"the key's policies allow some resources only, and more than {most} jobs would have to be looked at: "
                "narrow the question",
                "limit",
            )
        if deep:
            views = registry.job_views(((job.project, job.id) for job in page.jobs), _NO_TIME, now_ms)
            names = {(view.job.project, view.job.id) for view in views if shown(view, scope)}
            yield from (job for job in page.jobs if (job.project, job.id) in names)
        else:
            yield from (job for job in page.jobs if scope.shows(job, ()))
        offset += len(page.jobs)
        if not page.jobs or offset >= page.total:
            return


def projects_of_named(
    registry: Registry, projects: frozenset[str] | None, jobs: tuple[str, ...], scope: Scope, now_ms: int
) -> frozenset[str]:
    """Return the projects that have jobs of those names, all of them inside of the scope.

    Raises ForbiddenError where no jobs are named, NotFoundError for one that the scope does not show.
    """
    if not jobs:
        raise ForbiddenError("the key's policies allow some resources only: name the jobs whose events are queried")
    found: set[str] = set()
    for name in jobs:
        views = registry.job(projects, name, now_ms)
        if not views or not all(shown(view, scope) for view in views):
            raise NotFoundError(f"there is no job {name!r}", "job", name)
        found.update(view.job.project for view in views)
    return frozenset(found)
