"""Stored findings of all jobs that a caller may see."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.model.finding import ListedFinding
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.question import Question
from jobmeter.query.permitted import list_permitted_jobs
from jobmeter.registry.base import Registry
from jobmeter.registry.conditions import OPEN_FINDING
from jobmeter.registry.finding_list import MOST_EVENTS, EventsOfFindings

MOST_OPEN = 2_000
"""Most running jobs whose open findings are listed."""
_ANY = ("/",)


class JobFinding(msgspec.Struct, frozen=True):
    """A finding and its job. A finding is open while its job runs and nothing has reported its end."""

    finding: ListedFinding
    job: Job

    @property
    def open(self) -> bool:
        """True while the job runs and nothing has reported the end of the finding."""
        return self.finding.open and self.job.state is JobState.RUNNING


class FindingPage(msgspec.Struct, frozen=True):
    """Findings, and ``more`` if there are others behind them."""

    findings: Sequence[JobFinding]
    more: bool


class FindingListQuestion(msgspec.Struct, Question[FindingPage], frozen=True, kw_only=True):
    """Question for the findings of visible jobs, reported in ``[start, end)``, newest first.

    ``values`` are the values of a condition on findings, none for any. ``open``: only open ones, the worst first.
    """

    by_resource = True

    projects: frozenset[str] | None = None
    values: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    open: bool = False
    offset: int = 0
    limit: int = 100


def list_findings(registry: Registry, question: FindingListQuestion, scope: Scope, now_ms: int) -> FindingPage:
    """Answer a ``FindingListQuestion``. Raises LimitExceededError if too many jobs have to be checked."""
    projects = scope.intersect_projects(question.projects)
    if projects is not None and not projects:
        return FindingPage([], more=False)
    stop = question.offset + question.limit
    wanted = EventsOfFindings(
        count=MOST_EVENTS if question.open else stop + 1,
        projects=projects,
        values=question.values,
        start=question.start,
        end=question.end,
        jobs=_list_open_conditions(registry, question, projects, scope, now_ms) if question.open else None,
    )
    found, is_whole = _read(registry, wanted, scope, now_ms)
    while not is_whole and len(found) <= stop:
        # A job may be gone, or not permitted: then its findings are left out, and older ones take their places.
        wanted = replace(wanted, count=min(2 * wanted.count, MOST_EVENTS))
        found, is_whole = _read(registry, wanted, scope, now_ms)
    if question.open:
        found.sort(key=lambda one: list(type(one.finding.severity)).index(one.finding.severity), reverse=True)
    return FindingPage(found[question.offset : stop], more=len(found) > stop)


def _read(registry: Registry, wanted: EventsOfFindings, scope: Scope, now_ms: int) -> tuple[list[JobFinding], bool]:
    """Return the findings of visible jobs among the wanted ones, and True if a larger count would add none."""
    listed = registry.list_findings_by_time(wanted)
    jobs = _jobs(registry, listed, scope, now_ms)
    found = [JobFinding(one, jobs[one.project, one.job]) for one in listed if (one.project, one.job) in jobs]
    return found, len(listed) < wanted.count or wanted.count >= MOST_EVENTS


def _list_open_conditions(
    registry: Registry, question: FindingListQuestion, projects: frozenset[str] | None, scope: Scope, now_ms: int
) -> tuple[tuple[str, str], ...]:
    condition = Condition(OPEN_FINDING, Operator.IN, question.values or _ANY)
    running = frozenset({JobState.RUNNING})
    wanted = JobFilter(projects=projects, states=running, conditions=(condition,), limit=MOST_OPEN)
    return tuple((job.project, job.id) for job in list_permitted_jobs(registry, wanted, scope, now_ms).jobs)


def _jobs(registry: Registry, listed: Sequence[ListedFinding], scope: Scope, now_ms: int) -> dict[tuple[str, str], Job]:
    if not listed:
        return {}
    names = {(one.project, one.job) for one in listed}
    projects, ids = frozenset(project for project, _ in names), tuple(sorted({job for _, job in names}))
    wanted = JobFilter(projects=projects, ids=ids, limit=len(projects) * len(ids))
    page = list_permitted_jobs(registry, wanted, scope, now_ms)
    return {(job.project, job.id): job for job in page.jobs}
