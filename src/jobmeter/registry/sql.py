"""The registry over SQL: each method one transaction, the work done in the modules beside this one."""

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from jobmeter.errors import UnavailableError
from jobmeter.model.event import WHOLE_SERVER, Event, EventFilter, EventPage
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import Allocation, Job, JobFilter, JobGroup, JobPage, JobSize, JobView, Node, Project
from jobmeter.model.record import LeaseRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, TimeRange
from jobmeter.registry import (
    backup,
    changes,
    events,
    groups,
    jobs,
    lapses,
    node_lives,
    nodes,
    observe,
    projects,
    sizes,
    slices,
)
from jobmeter.registry import records as recording
from jobmeter.registry import rows as rows_
from jobmeter.registry.base import Observation, Registry
from jobmeter.registry.breaker import OBSERVE_SECONDS, SHORT_SECONDS, SLOW_SECONDS
from jobmeter.registry.columns.column_store import ColumnStore
from jobmeter.registry.database import SQLITE, Database
from jobmeter.registry.finding_summaries import finding_summaries
from jobmeter.registry.interval_cache import IntervalCache
from jobmeter.registry.keys import KeyTable
from jobmeter.registry.leases import LeaseTable
from jobmeter.registry.memory import CachedAnswers, Expiring
from jobmeter.registry.migrate import migrate
from jobmeter.registry.pods import PodTable
from jobmeter.registry.shippers import Shippers
from jobmeter.registry.statements import chunks
from jobmeter.registry.tasks import TaskTable
from jobmeter.registry.usage import UsageTable


class SqlRegistry(KeyTable, LeaseTable, UsageTable, Registry):
    """See ``Registry``. SQLite and PostgreSQL alike."""

    memory: CachedAnswers

    def __init__(self, database: Database, retention: Retention) -> None:
        """Take over a database and bring its tables up to date. ``retention`` serves projects without their own."""
        self._database = database
        self._retention = retention
        self.shippers = Shippers(database)
        self._columns = ColumnStore(database)
        # One process serves a SQLite database: nobody else writes its jobs.
        alone = database.kind == SQLITE
        self.memory = CachedAnswers(alone=alone)
        self._intervals = IntervalCache(alone=alone)
        self._counting = threading.Lock()
        self._events_dropped = 0
        self.tasks = TaskTable(database)
        self.pods = PodTable(database)
        migrate(database)

    def record(self, project: str, records: Records, now_ms: int) -> int:
        """See ``Registry.record``."""
        prepared = [recording.prepare(project, record) for record in slices.without_repeats(records.jobs)]
        rows = nodes.prepare_nodes(project, records.nodes, now_ms)
        written = [events.event_row(project, record) for record in records.events]
        for some in slices.slices(prepared):
            self._record_jobs(project, some, now_ms)
        for described in chunks(rows, slices.SLICE_ROWS):
            with self._database.write(key=project) as connection:
                nodes.add_projects(connection, [project])
                dropped = events.add_events(connection, nodes.merge_nodes(connection, described, now_ms))
            self._drop(dropped)
        for happened in chunks(written, slices.SLICE_ROWS):
            with self._database.write(key=project) as connection:
                dropped = events.add_events(connection, happened)
            self._drop(dropped)
        for renewals in chunks(records.leases, slices.SLICE_ROWS):
            self._renew(project, renewals, now_ms)
        return records.count

    def _record_jobs(self, project: str, prepared: Sequence[recording.PreparedJob], now_ms: int) -> None:
        names = {entry.record.job_id for entry in prepared}
        with self._database.write(key=project) as connection:
            nodes.add_projects(connection, [project])
            happened = recording.merge_jobs(connection, project, prepared, now_ms)
            dropped = events.add_events(connection, happened)
            changes.notify(connection, recorded=((project, name) for name in names))
        self._intervals.forget((project, name) for name in names)
        self._written(names, dropped)

    def _renew(self, project: str, renewals: Sequence[LeaseRecord], now_ms: int) -> None:
        with self._database.write(key=project) as connection:
            found = lapses.renew(connection, project, renewals, now_ms)
            dropped = events.add_events(connection, found.events)
            changes.notify(connection, recorded=found.jobs)
        self._changed_lives(found, dropped)

    def lease(self, project: str, job: str) -> tuple[int, str] | None:
        """See ``Registry.lease``."""
        with self._database.read() as connection:
            return lapses.lease(connection, project, job)

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """See ``Registry.mark_lost``."""
        marked = 0
        while True:
            with self._database.write() as connection:
                lost = lapses.mark_lost(connection, now_ms, heard_since_ms, least_ms)
                dropped = events.add_events(connection, lost.events)
                changes.notify(connection, recorded=lost.jobs)
            self._changed_lives(lost, dropped)
            marked += len(lost.jobs)
            if len(lost.jobs) < lapses.MOST:
                return marked

    def _changed_lives(self, changed: lapses.ChangedLives, dropped: int) -> None:
        if changed.jobs:
            self._intervals.forget(changed.jobs)
            self._written({job for _, job in changed.jobs}, dropped)

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        """See ``Registry.observe``."""
        if observations:
            with self._database.write(OBSERVE_SECONDS) as connection:
                happened, observed = observe.observe(connection, observations, now_ms, self._intervals)
                dropped = events.add_events(connection, happened)
                changes.notify(
                    connection, sampled=((sampled.project, sampled.job) for sampled in observations if sampled.job)
                )
            self._intervals.commit(observed)
            self._written({sampled.job for sampled in observations}, dropped)

    def mark_nodes(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """See ``Registry.mark_nodes``."""
        marked, more = 0, True
        while more:
            with self._database.write() as connection:
                happened, more = node_lives.mark(connection, now_ms, heard_since_ms, least_ms)
                self._drop(events.add_events(connection, happened))
            marked += len(happened)
        return marked

    def add_events(self, happened: Sequence[Event]) -> None:
        """See ``Registry.add_events``."""
        with self._database.write() as connection:
            self._drop(events.add_events(connection, [events.row_of(one) for one in happened]))

    def events(self, question: EventFilter) -> EventPage:
        """See ``Registry.events``."""
        with self._database.read() as connection:
            return events.list_events(connection, question)

    @property
    def events_dropped(self) -> int:
        """See ``Registry.events_dropped``."""
        return self._events_dropped

    def prune(self, now_ms: int) -> int:
        """See ``Registry.prune``."""
        # What to delete is sought while others write: only the deletion itself blocks them.
        with self._database.read(SLOW_SECONDS) as connection:
            found = []
            for project in (WHOLE_SERVER, *nodes.every_project(connection)):
                own = nodes.project_retention(connection, project) or self._retention
                before_ms = now_ms - own.hour_days * DAY
                found.append((project, events.outlived(connection, project, before_ms), before_ms))
        deleted = 0
        for project, names, before_ms in found:
            if names:
                with self._database.write(SLOW_SECONDS) as connection:
                    deleted += events.delete_outlived(connection, project, names, before_ms)
        return deleted

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """See ``Registry.jobs``."""
        return self._columns.jobs(question, now_ms)

    def projects(self, names: frozenset[str] | None, now_ms: int) -> list[Project]:
        """See ``Registry.projects``."""
        with self._database.read() as connection:
            return projects.list_projects(connection, names, now_ms)

    def sizes(self, jobs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobSize]:
        """See ``Registry.sizes``."""
        with self._database.read() as connection:
            return sizes.job_sizes(connection, jobs)

    def findings(self, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
        """See ``Registry.findings``."""
        with self._database.read() as connection:
            return finding_summaries(connection, jobs)

    def job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        """See ``Registry.job``."""
        views, generation = self.memory.views.get(job, projects, now_ms)
        if views is None:
            with self._database.read() as connection:
                written = jobs.job_views(connection, projects, job, now_ms)
            self.memory.views.put(job, projects, written, generation)
            views = written.answer
        return list(views)

    def job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        """See ``Registry.job_groups``."""
        return self._columns.job_groups(projects)

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str, span: TimeRange, now_ms: int
    ) -> list[JobView]:
        """See ``Registry.group_jobs``."""
        return self._columns.group_jobs(projects, resource_group, span, now_ms)

    def job_views(self, jobs: Iterable[tuple[str, str]], span: TimeRange, now_ms: int) -> list[JobView]:
        """See ``Registry.job_views``."""
        with self._database.read() as connection:
            return groups.views_of(connection, jobs, span, now_ms)

    def job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        """See ``Registry.job_head``."""
        heads, generation = self.memory.heads.get(job, projects, now_ms)
        if heads is None:
            with self._database.read(SHORT_SECONDS) as connection:
                written = jobs.job_heads(connection, projects, job, now_ms)
            self.memory.heads.put(job, projects, written, generation)
            heads = written.answer
        return list(heads)

    def _drop(self, events_dropped: int) -> None:
        with self._counting:
            self._events_dropped += events_dropped

    def _written(self, changed: set[str], dropped: int = 0) -> None:
        self._drop(dropped)
        self._columns.written()
        self.memory.written(changed)

    def allocations(self, project: str, job: str) -> list[Allocation]:
        """See ``Registry.allocations``."""
        with self._database.read() as connection:
            # At a moment before everything: the devices of a job without records have not ended.
            heads = [rows_.job_of(row, 0) for row in jobs.job_rows(connection, frozenset({project}), job)]
            return [allocation for head in heads for allocation in jobs.job_allocations(connection, head)]

    def delete_job(self, project: str, job: str) -> bool:
        """See ``Registry.delete_job``."""
        with self._database.write() as connection:
            found = jobs.forget_job(connection, project, job)
            changes.notify(connection, recorded=[(project, job)])
        self._intervals.forget([(project, job)])
        self._written({job})
        return found

    def nodes(self, projects: frozenset[str] | None, names: frozenset[str] | None = None) -> list[Node]:
        """See ``Registry.nodes``."""
        with self._database.read() as connection:
            return nodes.list_nodes(connection, projects, names)

    def retention(self, project: str) -> Retention:
        """See ``Registry.retention``."""
        retention, generation = self.memory.retentions.get(project, None, 0)
        if retention is None:
            retention = self._read_retention(project)
            self.memory.retentions.put(project, None, Expiring(retention), generation)
        return retention

    def _read_retention(self, project: str) -> Retention:
        try:
            with self._database.read(SHORT_SECONDS) as connection:
                return nodes.project_retention(connection, project) or self._retention
        except UnavailableError:
            last = self.memory.retentions.last(project, None)
            if last is None:
                raise
            return last

    def set_retention(self, project: str, retention: Retention | None) -> None:
        """See ``Registry.set_retention``."""
        with self._database.write() as connection:
            nodes.set_project_retention(connection, project, retention)
        self.memory.retentions.written([project])

    def recorded_since(self, mark: tuple[int, int] | None) -> tuple[list[tuple[str, str]] | None, tuple[int, int]]:
        """See ``Registry.recorded_since``."""
        with self._database.read() as connection:
            if mark is None:
                now = changes.now(connection)
                return changes.recorded(connection), (now.last, now.open)
            changed, after = changes.since(connection, changes.ChangePosition(*mark))
        if changed is None:
            return None, mark
        return list(changes.jobs_of(changed.recorded)), (after.last, after.open)

    def backup(self, directory: Path) -> None:
        """See ``Registry.backup``."""
        backup.backup(self._database, directory)

    def restore(self, directory: Path) -> None:
        """See ``Registry.restore``."""
        backup.restore(self._database, directory)
        self._intervals.clear()
        self.memory.clear()

    def prepare(self) -> None:
        """See ``Registry.prepare``."""
        with suppress(UnavailableError):
            self.key_by_token(b"")
            with self._database.read(SHORT_SECONDS) as connection:
                jobs.prepare(connection)
        self._columns.prepare()

    def close(self) -> None:
        """See ``Registry.close``."""
        self._columns.close()
        self._database.close()
