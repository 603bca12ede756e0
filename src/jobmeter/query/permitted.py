"""Listings for a key whose policies allow only some resources of a project.

Totals, newest members and sums cover only the permitted jobs, as if no other jobs existed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import ForbiddenError, LimitExceededError, NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobPage, JobState, Node, Operator, Project
from jobmeter.model.log_tree import LogQuery, Property
from jobmeter.model.question import Question
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.query.defaults import find_creation
from jobmeter.query.subjects import is_shown
from jobmeter.registry.base import Registry

MOST_CHECKED, MOST_VIEWED = 100_000, 5_000
"""Most jobs that a listing checks; and most if policies name clusters, because then each job's view is read."""
_PAGE = 1_000
_MOST_ABOUT = 256
"""Newest jobs of a node whose lines in its system log are shown to a key that sees only some jobs."""
_NO_TIME = TimeRange(0, 0)

JobName = tuple[str, str]
"""Job: (project, id)."""


PART_ALONE = "the key's policies allow only some resources: query series by the jobs they allow"
"""Refusal of a question that would be answered for whole projects."""


def check_scope(question: Question[Any], scope: Scope) -> None:
    """Refuse a question that its type does not open to the scope; see ``Question``. Raises ForbiddenError."""
    if scope.grant is not None and not question.by_resource:
        raise ForbiddenError(PART_ALONE)
    if scope.job is not None and not question.of_job:
        raise ForbiddenError(f"this key opens job {scope.job} alone")
    if question.whole_server and scope.projects is not None:
        raise ForbiddenError("the answer covers the whole server, and this key sees only some projects")


def list_permitted_jobs(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> JobPage:
    """Return a page of the jobs that the key's policies permit; other jobs are not counted.

    Raises LimitExceededError if too many have to be checked.
    """
    if scope.grant is None:
        return registry.list_jobs(question, now_ms)
    found = list(iterate_permitted_jobs(registry, question, scope, now_ms))
    return JobPage(found[question.offset : question.offset + question.limit], len(found))


def count_permitted_states(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> dict[JobState, int]:
    """Return the number of permitted jobs by state. Raises LimitExceededError if too many have to be checked."""
    if scope.grant is None:
        return registry.count_states(question, now_ms)
    return dict(Counter(job.state for job in iterate_permitted_jobs(registry, question, scope, now_ms)))


def filter_permitted_names(
    registry: Registry, jobs: Iterable[JobName], scope: Scope, now_ms: int
) -> AbstractSet[JobName]:
    """Filter the names of jobs inside the scope; if policies narrow it, also by existence.

    Raises LimitExceededError if too many have to be checked.
    """
    names = {name for name in jobs if scope.allows(*name)}
    if scope.grant is None or not names:
        return names
    projects, ids = frozenset(project for project, _ in names), tuple(sorted({job for _, job in names}))
    found = iterate_permitted_jobs(registry, JobFilter(projects=projects, ids=ids), scope, now_ms)
    return names & {(job.project, job.id) for job in found}


def filter_permitted_series(
    registry: Registry, series: Sequence[Series], scope: Scope, now_ms: int
) -> Sequence[Series]:
    """Filter the series that belong to no job, or to a job inside the scope.

    Raises LimitExceededError if too many jobs have to be checked.
    """
    if scope.grant is None:
        return series
    jobs = filter_permitted_names(registry, ((one.project, one.job) for one in series if one.job), scope, now_ms)
    return [one for one in series if not one.job or (one.project, one.job) in jobs]


def list_permitted_projects(
    registry: Registry, names: frozenset[str] | None, scope: Scope, now_ms: int
) -> Sequence[Project]:
    """Return the projects of which a key's policies permit the whole or some job, as if there were no other jobs."""
    found = registry.list_projects(names, now_ms)
    if scope.grant is None:
        return found
    shown: list[Project] = []
    for one in found:
        own = JobFilter(projects=frozenset({one.name}))
        newest, oldest = (
            next(iterate_permitted_jobs(registry, replace(own, descending=down), scope, now_ms), None)
            for down in (True, False)
        )
        if newest is not None or scope.grant.shows(one.name):
            created = None if oldest is None else find_creation(oldest)
            shown.append(Project(name=one.name, created=created, latest=newest))
    return shown


def hide_unpermitted_lines(registry: Registry, nodes: Sequence[Node], scope: Scope, now_ms: int) -> LogQuery | None:
    """Build a condition that hides lines in nodes' system logs about jobs outside the scope; None if nothing is hidden.

    Shows lines about the newest 256 permitted jobs.
    """
    if scope.grant is None:
        return None
    on_nodes = Condition("node", Operator.IN, tuple(sorted({node.name for node in nodes})))
    question = JobFilter(projects=frozenset(node.project for node in nodes), conditions=(on_nodes,), limit=_MOST_ABOUT)
    jobs = list_permitted_jobs(registry, question, scope, now_ms).jobs
    return Property("job", ("", *sorted({job.id for job in jobs})))


def iterate_permitted_jobs(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> Iterator[Job]:
    """Yield the matching jobs that the key's policies permit, without regard to the page of the question.

    Raises LimitExceededError if too many have to be checked.
    """
    deep = scope.grant is not None and scope.grant.clusters
    most = MOST_VIEWED if deep else MOST_CHECKED
    offset = 0
    while True:
        page = registry.list_jobs(replace(question, offset=offset, limit=_PAGE), now_ms)
        if scope.grant is not None and page.total > most:
            raise LimitExceededError(
                f"the key's policies allow only some resources, and more than {most} jobs would have to be checked: "
                "narrow the question",
                "limit",
            )
        if deep:
            views = registry.list_job_views(((job.project, job.id) for job in page.jobs), _NO_TIME, now_ms)
            names = {(view.job.project, view.job.id) for view in views if is_shown(view, scope)}
            yield from (job for job in page.jobs if (job.project, job.id) in names)
        else:
            yield from (job for job in page.jobs if scope.grant is None or scope.shows(job, ()))
        offset += len(page.jobs)
        if not page.jobs or offset >= page.total:
            return


def find_job_projects(
    registry: Registry, projects: frozenset[str] | None, jobs: tuple[str, ...], scope: Scope, now_ms: int
) -> frozenset[str]:
    """Return the projects of the named jobs, which must all be inside the scope.

    Raises ForbiddenError without names, NotFoundError for a job outside the scope.
    """
    if not jobs:
        raise ForbiddenError("the key's policies allow only some resources: name the jobs whose events you want")
    found: set[str] = set()
    for name in jobs:
        views = registry.find_job(projects, name, now_ms)
        if not views or not all(is_shown(view, scope) for view in views):
            raise NotFoundError(f"there is no job {name!r}", "job", name)
        found.update(view.job.project for view in views)
    return frozenset(found)
