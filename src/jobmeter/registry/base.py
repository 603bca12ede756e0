"""The registry: each method is one transaction; the modules beside this one do the work."""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jobmeter.errors import UnavailableError
from jobmeter.model.event import WHOLE_SERVER, Event, EventFilter, EventPage
from jobmeter.model.finding import FindingSummary, ListedFinding
from jobmeter.model.job import Job, JobFilter, JobGroup, JobPage, JobSize, JobState, JobView, Node, Project
from jobmeter.model.record import LeaseRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import Shipper
from jobmeter.model.time import DAY, TimeRange
from jobmeter.registry import (
    backup,
    changes,
    events,
    groups,
    jobs,
    lease_expiry,
    node_liveness,
    nodes,
    observe,
    sizes,
    transactions,
)
from jobmeter.registry import records as recording
from jobmeter.registry.alerts import AlertTable
from jobmeter.registry.annotations import AnnotationTable
from jobmeter.registry.breaker import OBSERVE_SECONDS, SHORT_SECONDS, SLOW_SECONDS
from jobmeter.registry.columns.column_store import ColumnStore
from jobmeter.registry.database import SQLITE, Database
from jobmeter.registry.finding_list import EventsOfFindings, read_findings
from jobmeter.registry.finding_summaries import read_finding_summaries
from jobmeter.registry.interval_cache import IntervalChanges, JobKey
from jobmeter.registry.keys import KeyTable
from jobmeter.registry.leases import LeaseTable
from jobmeter.registry.memory import CachedAnswers, Expiring
from jobmeter.registry.migrate import migrate
from jobmeter.registry.pods import PodTable
from jobmeter.registry.rates import RateTable
from jobmeter.registry.refresh import CacheRefresh
from jobmeter.registry.schedulers import SchedulerTable, make_scheduler_row
from jobmeter.registry.shippers import Shippers
from jobmeter.registry.signatures import SignatureTable
from jobmeter.registry.statements import iterate_chunks
from jobmeter.registry.stored import Observation
from jobmeter.registry.tasks import TaskTable
from jobmeter.registry.usage import UsageTable


class Registry:
    """The relational database of jobs, nodes and keys: SQLite or PostgreSQL.

    Every method may be called from any thread and is one transaction. A failure of the database is UnavailableError.
    ``memory`` answers without waiting.
    """

    def __init__(self, database: Database, retention: Retention) -> None:
        """Use a database, and bring its tables up to date. ``retention`` is for projects without a setting."""
        self.database = database
        self._retention = retention
        self.columns = ColumnStore(database)
        # A single process serves a SQLite database: nobody else writes its jobs.
        alone = database.kind == SQLITE
        self.memory = CachedAnswers(alone=alone)
        self.refresh = CacheRefresh(database, self.memory, alone=alone)
        self._counting = threading.Lock()
        self._events_dropped = 0
        self.keys = KeyTable(database)
        self.leases = LeaseTable(database)
        self.rates = RateTable(database)
        self.schedulers = SchedulerTable(database)
        self.signatures = SignatureTable(database)
        self.usage = UsageTable(database)
        self.shippers = Shippers(database)
        self.tasks = TaskTable(database)
        self.pods = PodTable(database)
        self.alerts = AlertTable(database, self._drop)
        self.annotations = AnnotationTable(database)
        migrate(database)

    def record(self, project: str, records: Records, now_ms: int) -> int:
        """Merge job and node records into ``project``. Fields that a record omits stay. Return the number of records.

        A record that names its own project must name this one; callers may check that differently. Events are stored
        once each, and a record that changes a state adds an event. Many records are several transactions, between which
        others write. Raises InvalidRequestError naming the field. If a record is invalid, nothing is stored. If a
        record conflicts with stored data (another run's lease, an attempt that has ended, too many checkpoints),
        earlier records may be stored. The same records may always be sent again.
        """
        prepared = [recording.prepare(project, record) for record in transactions.drop_repeats(records.jobs)]
        rows = nodes.prepare_nodes(project, records.nodes, now_ms)
        written = [events.make_event_row(project, record) for record in records.events]
        reports = [make_scheduler_row(project, record, now_ms) for record in records.schedulers]
        for some in transactions.split(prepared):
            self._record_jobs(project, some, now_ms)
        for described in iterate_chunks(rows, transactions.MOST_ROWS):
            with self.database.write(key=project) as connection:
                nodes.add_projects(connection, [project])
                dropped = events.add_events(connection, nodes.merge_nodes(connection, described, now_ms))
            self._drop(dropped)
        for happened in iterate_chunks(written, transactions.MOST_ROWS):
            with self.database.write(key=project) as connection:
                dropped = events.add_events(connection, happened)
            self._drop(dropped)
        for renewals in iterate_chunks(records.leases, transactions.MOST_ROWS):
            self._renew(project, renewals, now_ms)
        if reports:
            self.schedulers.put(project, reports)
        return records.count

    def _record_jobs(self, project: str, prepared: Sequence[recording.PreparedJob], now_ms: int) -> None:
        written = {(project, entry.record.job_id) for entry in prepared}
        with self.database.write(key=project) as connection:
            nodes.add_projects(connection, [project])
            happened = recording.merge_jobs(connection, project, prepared, now_ms)
            dropped = events.add_events(connection, happened)
            changes.notify(connection, recorded=written)
        self._invalidate(written, dropped)

    def _renew(self, project: str, renewals: Sequence[LeaseRecord], now_ms: int) -> None:
        with self.database.write(key=project) as connection:
            found = lease_expiry.renew(connection, project, renewals, now_ms)
            dropped = events.add_events(connection, found.events)
            changes.notify(connection, recorded=found.jobs)
        self._note_changed_states(found, dropped)

    def get_lease(self, project: str, job: str) -> tuple[int, str] | None:
        """Return the end of a job's lease and its owner; None without a lease.

        The owner is empty until the first renewal.
        """
        with self.database.read() as connection:
            return lease_expiry.read_lease(connection, project, job)

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark the running jobs lost whose leases have expired: Failed with the error ``lost``. Return their number.

        A lease lasts ``least_ms`` at least. It does not count from before ``heard_since_ms``, when the server could not
        receive renewals. Each lost job adds an event.
        """
        marked = 0
        while True:
            with self.database.write() as connection:
                lost = lease_expiry.mark_lost(connection, now_ms, heard_since_ms, least_ms)
                dropped = events.add_events(connection, lost.events)
                changes.notify(connection, recorded=lost.jobs)
            self._note_changed_states(lost, dropped)
            marked += len(lost.jobs)
            if len(lost.jobs) < lease_expiry.MOST:
                return marked

    def _note_changed_states(self, changed: lease_expiry.StateChanges, dropped: int) -> None:
        if changed.jobs:
            self._invalidate(changed.jobs, dropped)

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Create the jobs, replicas, nodes and allocations that samples name, and extend their times.

        The devices of replicas get allocations (source ``import``). A job or replica that starts to run adds an event.
        The end of a job or replica without a record adds none.
        """
        if observations:
            with self.database.write(OBSERVE_SECONDS) as connection:
                happened, observed = observe.observe(connection, observations, now_ms, self.memory.intervals)
                dropped = events.add_events(connection, happened)
                sampled = {(one.project, one.job) for one in observations}
                changes.notify(connection, sampled=(key for key in sampled if key[1]))
            self._invalidate(sampled, dropped, observed)

    def mark_nodes(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark nodes down after ``least_ms`` of silence, and up when they send again. Return the number of events.

        Only nodes that described themselves are watched. A node with a long interval may be silent for five intervals.
        Silence does not count from before ``heard_since_ms``. Each change adds an event.
        """
        marked, more = 0, True
        while more:
            with self.database.write() as connection:
                happened, more = node_liveness.mark(connection, now_ms, heard_since_ms, least_ms)
                self._drop(events.add_events(connection, happened))
            marked += len(happened)
        return marked

    def add_events(self, happened: Sequence[Event]) -> None:
        """Store events of the server itself, each once. Their project may be ``WHOLE_SERVER``."""
        with self.database.write() as connection:
            self._drop(events.add_events(connection, [events.make_row(one) for one in happened]))

    def list_events(self, question: EventFilter) -> EventPage:
        """Return one page of events.

        A job has its newest 100,000 events; events of nodes are stored as long as hourly values.
        """
        with self.database.read() as connection:
            return events.list_events(connection, question)

    @property
    def events_dropped(self) -> int:
        """Number of events deleted from jobs that had too many, since this process started."""
        return self._events_dropped

    def prune(self, now_ms: int) -> int:
        """Delete old events of nodes, and events of jobs that do not exist. Return their number."""
        # Search for deletable events while others write: only the deletion itself blocks them.
        with self.database.read(SLOW_SECONDS) as connection:
            found = []
            for project in (WHOLE_SERVER, *nodes.list_project_names(connection)):
                own = nodes.read_project_retention(connection, project) or self._retention
                before_ms = now_ms - own.hour_days * DAY
                found.append((project, events.find_outlived(connection, project, before_ms), before_ms))
        deleted = 0
        for project, names, before_ms in found:
            if names:
                with self.database.write(SLOW_SECONDS) as connection:
                    deleted += events.delete_outlived(connection, project, names, before_ms)
        return deleted

    def list_jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """Return one page of jobs, and the exact number of all that match.

        Includes every committed write of any process. The state of a job without a record is derived: Running if
        sampled in the last 5 minutes, else Unknown.
        """
        return self.columns.list_jobs(question, now_ms)

    def count_states(self, question: JobFilter, now_ms: int) -> dict[JobState, int]:
        """Return the number of jobs that match, by state; states without jobs are left out."""
        return self.columns.count_states(question, now_ms)

    def list_projects(self, names: frozenset[str] | None, now_ms: int) -> list[Project]:
        """Return the projects with these names (None: all) that have ever been written to, sorted."""
        with self.database.read() as connection:
            return nodes.list_projects(connection, names, now_ms)

    def read_sizes(self, jobs: Iterable[tuple[str, str]], *, places: bool = False) -> dict[tuple[str, str], JobSize]:
        """Return the sizes of these jobs, (project, id); with ``places`` also their devices and nodes."""
        with self.database.read() as connection:
            return sizes.read_job_sizes(connection, jobs, places=places)

    def list_findings(self, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
        """Return the stored findings of these jobs, (project, id). Jobs without findings are left out."""
        with self.database.read() as connection:
            return read_finding_summaries(connection, jobs)

    def list_findings_by_time(self, question: EventsOfFindings) -> list[ListedFinding]:
        """Return findings of jobs, the newest first."""
        with self.database.read() as connection:
            return read_findings(connection, question)

    def find_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        """Return every job with this id in these projects (None: all).

        Replicas are in natural order, allocations sorted by start.
        """
        self.refresh.await_changes()
        found = self.memory.views.get_or_read(job, projects, now_ms, lambda: self._read_views(projects, job, now_ms))
        return list(found)

    def _read_views(self, projects: frozenset[str] | None, job: str, now_ms: int) -> Expiring[list[JobView]]:
        with self.database.read() as connection:
            return jobs.read_job_views(connection, projects, job, now_ms)

    def list_job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        """Return the resource groups that jobs of those projects (None: all) name, by project and name."""
        return self.columns.list_job_groups(projects)

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str | None, span: TimeRange, now_ms: int
    ) -> Iterator[JobView]:
        """Yield the jobs of a resource group (None: of all) that ran or were queued in the span, by project and id.

        They are read while the caller iterates, some hundred at a time. Each has its replicas, and its allocations that
        overlap the span. A job without a record counts as running until 5 minutes after its last sample.
        """
        return self.columns.group_jobs(projects, resource_group, span, now_ms)

    def list_job_views(self, jobs: Iterable[tuple[str, str]], span: TimeRange, now_ms: int) -> list[JobView]:
        """Return these jobs, (project, id), by project and id, with replicas, and allocations that overlap the span."""
        with self.database.read() as connection:
            return list(groups.iterate_views(connection, jobs, span, now_ms))

    def find_job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        """Return the jobs with this id, without replicas and allocations, for the hot path.

        Includes every change that any process acknowledged before the call.
        """
        self.refresh.await_changes()
        found = self.memory.heads.get_or_read(job, projects, now_ms, lambda: self._read_heads(projects, job, now_ms))
        return list(found)

    def _read_heads(self, projects: frozenset[str] | None, job: str, now_ms: int) -> Expiring[list[Job]]:
        with self.database.read(SHORT_SECONDS) as connection:
            return jobs.read_job_heads(connection, projects, job, now_ms)

    def _drop(self, events_dropped: int) -> None:
        with self._counting:
            self._events_dropped += events_dropped

    def _invalidate(
        self, changed: Collection[JobKey], dropped: int = 0, observed: IntervalChanges | None = None
    ) -> None:
        self._drop(dropped)
        self.columns.read_soon()
        self.memory.invalidate(changed, observed)
        self.refresh.announce(changed)

    def delete_job(self, project: str, job: str) -> bool:
        """Delete a job's record and its events. Return False if there was no record."""
        with self.database.write() as connection:
            found = jobs.forget_job(connection, project, job)
            changes.notify(connection, recorded=[(project, job)])
        self._invalidate([(project, job)])
        return found

    def list_recent_shippers(self) -> Sequence[Shipper]:
        """Return every log shipper, by creation, at most a second old."""
        return self.memory.shippers.get_or_read("", None, 0, lambda: Expiring(self.shippers.list_shippers()))

    def read_node_groups(self) -> Mapping[tuple[str, str], str]:
        """Return the resource group of each (project, node) that has one, at most ten seconds old.

        Each node is also there under an empty project.
        """
        return self.memory.node_groups.get_or_read("", None, 0, self._read_groups)

    def _read_groups(self) -> Expiring[Mapping[tuple[str, str], str]]:
        grouped = [node for node in self.list_nodes(None) if node.resource_group]
        anywhere = {("", node.name): node.resource_group for node in grouped}
        return Expiring(anywhere | {(node.project, node.name): node.resource_group for node in grouped})

    def list_nodes(self, projects: frozenset[str] | None, names: frozenset[str] | None = None) -> list[Node]:
        """Return the nodes with these names (None: all), by cluster and name."""
        with self.database.read() as connection:
            return nodes.list_nodes(connection, projects, names)

    def get_retention(self, project: str) -> Retention:
        """Return the retention of a project's samples: its own setting, else the server's.

        A setting of another process may appear a second late. If the database does not answer, the last value read
        applies.
        """
        return self.memory.retentions.get_or_read(project, None, 0, lambda: Expiring(self._read_retention(project)))

    def _read_retention(self, project: str) -> Retention:
        try:
            with self.database.read(SHORT_SECONDS) as connection:
                return nodes.read_project_retention(connection, project) or self._retention
        except UnavailableError:
            last = self.memory.retentions.get_last(project, None)
            if last is None:
                raise
            return last

    def set_retention(self, project: str, retention: Retention | None) -> None:
        """Set the retention of a project; None removes its setting."""
        with self.database.write() as connection:
            nodes.set_project_retention(connection, project, retention)
        self.memory.retentions.invalidate([project])

    def list_recorded_since(self, mark: tuple[int, int] | None) -> tuple[list[tuple[str, str]] | None, tuple[int, int]]:
        """Return the (project, id) of jobs that were recorded or deleted since a mark, and the next mark.

        None instead of jobs if the mark is older than the records of changes. Without a mark, the changes of the last
        ten minutes or more. A job may repeat.
        """
        with self.database.open_snapshot() as connection:
            if mark is None:
                now = changes.get_position(connection)
                return changes.list_recorded(connection), (now.last, now.open)
            changed, after = changes.read_changes(connection, changes.ChangePosition(*mark))
        if changed is None:
            return None, mark
        return list(changes.iterate_jobs(changed.recorded)), (after.last, after.open)

    def backup(self, directory: Path) -> None:
        """Write a consistent copy of the database into a directory, while it is in use."""
        backup.backup(self.database, directory)

    def restore(self, directory: Path) -> None:
        """Replace an empty registry with a copy made by ``backup``."""
        backup.restore(self.database, directory)
        self.memory.clear()

    def prepare(self) -> None:
        """Prepare for the first queries, and start to read the columns of listings on a thread.

        A server calls it at its start. Raises no error if the database does not answer.
        """
        with suppress(UnavailableError):
            self.keys.find_by_token(b"")
            with self.database.read(SHORT_SECONDS) as connection:
                jobs.prepare(connection)
        self.columns.prepare()

    def close(self) -> None:
        """Close the columns and the database."""
        self.columns.close()
        self.database.close()
