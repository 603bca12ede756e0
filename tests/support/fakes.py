"""Fakes for tests of ingestion and of questions: a manual clock, and a registry in dictionaries."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.access.principal import Principal, Role
from jobmeter.model.event import Event, EventFilter, EventPage
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import (
    Allocation,
    Job,
    JobFilter,
    JobGroup,
    JobPage,
    JobSize,
    JobState,
    JobView,
    Node,
    Project,
    Replica,
)
from jobmeter.model.record import Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import TimeRange
from jobmeter.registry.base import Registry
from jobmeter.registry.memory import CachedAnswers
from jobmeter.registry.shippers import Shippers
from jobmeter.registry.stored import Observation

WRITER = Principal(id="k1", name="writer", role=Role.WRITER)
NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class SetClock:
    """Clock that stands still until a test moves it."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000


class FakeMemory(CachedAnswers):
    """Memory part of the fake registry."""

    def __init__(self, registry: "FakeRegistry") -> None:
        self._registry = registry

    def get_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView] | None:
        return self._registry.find_job(projects, job, now_ms)

    def get_job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job] | None:
        return self._registry.find_job_head(projects, job, now_ms)

    def get_retention(self, project: str) -> Retention | None:
        return self._registry.retentions.get(project, Retention())

    def is_retention_expiring(self, project: str) -> bool:
        return project in self._registry.expiring


class FakeRegistry(Registry):
    """Registry in dictionaries with jobs, nodes and their records in the order of arrival. It has no log shippers."""

    shippers: Shippers

    keys: Any = None
    leases: Any = None
    usage: Any = None
    tasks: Any = None
    pods: Any = None
    alerts: Any = None

    def __init__(self) -> None:
        self.views: dict[tuple[str, str], JobView] = {}
        self.stored_nodes: list[Node] = []
        self.observations: list[Observation] = []
        self.recorded: list[tuple[str, Records]] = []
        self.retentions: dict[str, Retention] = {}
        self.expiring: set[str] = set()
        """Projects whose cached retention is about to expire."""
        self.event_questions: list[EventFilter] = []
        self.added_events: list[Event] = []
        self.failure: Exception | None = None
        self.memory = FakeMemory(self)

    def prepare(self) -> None:
        """Do nothing: this registry has nothing to read ahead."""

    def add_job(self, job: Job, replicas: Sequence[Replica] = (), allocations: Sequence[Allocation] = ()) -> None:
        self.views[job.project, job.id] = JobView(job=job, replicas=list(replicas), allocations=list(allocations))

    def record(self, project: str, records: Records, now_ms: int) -> int:
        self.recorded.append((project, records))
        return len(records.jobs) + len(records.nodes) + len(records.events)

    def list_events(self, question: EventFilter) -> EventPage:
        self.event_questions.append(question)
        return EventPage([], 0)

    @property
    def events_dropped(self) -> int:
        return 0

    def prune(self, now_ms: int) -> int:
        return 0

    def get_lease(self, project: str, job: str) -> tuple[int, str] | None:
        return None

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        return 0

    def mark_nodes(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        return 0

    def add_events(self, happened: Sequence[Event]) -> None:
        self.added_events.extend(happened)

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.observations.extend(observations)

    def list_jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        found = [
            view.job
            for view in self.views.values()
            if (question.projects is None or view.job.project in question.projects)
            and (not question.ids or view.job.id in question.ids)
        ]
        return JobPage(found, len(found))

    def list_projects(self, names: frozenset[str] | None, now_ms: int) -> list[Project]:
        found = {project for project, _ in self.views if names is None or project in names}
        return [Project(name=name) for name in sorted(found)]

    def read_sizes(self, jobs: Iterable[tuple[str, str]], *, places: bool = False) -> dict[tuple[str, str], JobSize]:
        return {job: JobSize(replicas=len(self.views[job].replicas)) for job in jobs if job in self.views}

    def list_findings(self, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
        return []

    def find_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        return [
            view
            for view in self.views.values()
            if view.job.id == job and (projects is None or view.job.project in projects)
        ]

    def list_job_views(self, jobs: Iterable[tuple[str, str]], span: TimeRange, now_ms: int) -> list[JobView]:
        wanted = set(jobs)
        return [view for view in self.views.values() if (view.job.project, view.job.id) in wanted]

    def list_job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        jobs = [view.job for view in self.views.values() if view.job.resource_group]
        by_key: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            if projects is None or job.project in projects:
                by_key.setdefault((job.project, job.resource_group), []).append(job)
        return [
            JobGroup(
                name=name,
                project=project,
                jobs=len(some),
                workspaces=tuple(sorted({job.workspace for job in some} - {""})),
                created=min(job.created or 0 for job in some),
                updated=max(job.updated or 0 for job in some),
            )
            for (project, name), some in sorted(by_key.items())
        ]

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str | None, span: TimeRange, now_ms: int
    ) -> Iterator[JobView]:
        return (
            view
            for view in self.views.values()
            if resource_group in (None, view.job.resource_group)
            and (projects is None or view.job.project in projects)
            and (view.job.start is None or view.job.start < span.end_ms)
            and (view.job.end is None or view.job.end >= span.start_ms)
        )

    def find_job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        return [view.job for view in self.find_job(projects, job, now_ms)]

    def delete_job(self, project: str, job: str) -> bool:
        return self.views.pop((project, job), None) is not None

    def list_nodes(self, projects: frozenset[str] | None, names: frozenset[str] | None = None) -> list[Node]:
        found = [node for node in self.stored_nodes if projects is None or node.project in projects]
        return [node for node in found if names is None or node.name in names]

    def get_retention(self, project: str) -> Retention:
        self.expiring.discard(project)
        return self.retentions.get(project, Retention())  # in memory, so it answers without a database

    def set_retention(self, project: str, retention: Retention | None) -> None:
        if retention is None:
            self.retentions.pop(project, None)
        else:
            self.retentions[project] = retention

    def list_recorded_since(self, mark: tuple[int, int] | None) -> tuple[list[tuple[str, str]] | None, tuple[int, int]]:
        return [], (0, 0)

    def backup(self, directory: Path) -> None: ...

    def restore(self, directory: Path) -> None: ...

    def close(self) -> None: ...


def running_job(job: str = "j1", project: str = "default", **fields: object) -> Job:
    """Return a job that started an hour before ``NOW``."""
    base = Job(id=job, project=project, state=JobState.RUNNING, start=NOW - 3_600_000)
    return msgspec.structs.replace(base, **fields)
