"""The registry's interface. One implementation over SQLAlchemy Core serves SQLite and PostgreSQL."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from jobmeter.model.event import Event, EventFilter, EventPage
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import Allocation, Job, JobFilter, JobGroup, JobPage, JobSize, JobView, Node, Project
from jobmeter.model.record import Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import TimeRange
from jobmeter.model.usage import Usage
from jobmeter.registry.shippers import Shippers

if TYPE_CHECKING:
    from jobmeter.registry.alerts import AlertTable
    from jobmeter.registry.pods import PodTable
    from jobmeter.registry.tasks import TaskTable


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the last time, in epoch ms, at which a batch has samples of one replica, device or node.

    Names that the samples lack are empty. An empty ``job`` means samples of the node.
    """

    project: str
    job: str
    replica: str
    attempt: int
    cluster: str
    node: str
    device: str
    first_ms: int
    last_ms: int


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the registry stores it: the token as a SHA-256 digest, the secret sealed. Times in epoch ms."""

    id: str
    name: str
    role: str
    project: str | None
    token_hash: bytes
    access_key_id: str
    sealed_secret: bytes
    created: int
    revoked: int | None = None
    last_used: int | None = None
    policies: str = ""
    """Policies attached to the key, as JSON; empty for none."""
    job: str = ""
    """The job that a link opens; empty for every other key."""
    expires: int | None = None
    """Time at which the key expires; None for never."""


class Memory(Protocol):
    """The cached part of a registry. No method waits: each returns the registry's answer, or None if it is not cached.

    Every method may be called from any thread.
    """

    def job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView] | None:
        """Return the jobs of ``Registry.job``, if they are cached."""
        ...

    def job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job] | None:
        """Return the jobs of ``Registry.job_head``, if they are cached."""
        ...

    def retention(self, project: str) -> Retention | None:
        """Return the retention of a project, if it is cached."""
        ...


class Registry(Protocol):
    """The relational database of jobs, nodes and keys.

    Every method may be called from any thread and is one transaction. A failure of the database is UnavailableError.
    """

    tasks: "TaskTable"
    """The diagnostic tasks."""
    alerts: "AlertTable"
    """The alerts, silences and messages."""
    pods: "PodTable"
    """The replicas of pods."""
    memory: Memory
    """The part that answers without waiting."""

    def record(self, project: str, records: Records, now_ms: int) -> int:
        """Merge job and node records into ``project``. Fields that a record omits stay. Return the number of records.

        A record that names its own project must name this one; callers may check that differently. Events are stored
        once each, and a record that changes a state adds an event. Many records are several transactions, between which
        others write. Raises InvalidRequestError naming the field. If a record is invalid, nothing is stored. If a
        record conflicts with stored data (another run's lease, an attempt that has ended, too many checkpoints),
        earlier records may be stored. The same records may always be sent again.
        """
        ...

    def lease(self, project: str, job: str) -> tuple[int, str] | None:
        """Return the end of a job's lease and its owner; None without a lease.

        The owner is empty until the first renewal.
        """
        ...

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark the running jobs lost whose leases have expired: Failed with the error ``lost``. Return their number.

        A lease lasts ``least_ms`` at least. It does not count from before ``heard_since_ms``, when the server could not
        receive renewals. Each lost job adds an event.
        """
        ...

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Create the jobs, replicas, nodes and allocations that samples name, and extend their times.

        The devices of replicas get allocations (source ``import``). A job or replica that starts to run adds an event.
        The end of a job or replica without a record adds none.
        """
        ...

    def mark_nodes(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark nodes down after ``least_ms`` of silence, and up when they send again. Return the number of events.

        Only nodes that described themselves are watched. A node with a long interval may be silent for five intervals.
        Silence does not count from before ``heard_since_ms``. Each change adds an event.
        """
        ...

    def add_events(self, happened: Sequence[Event]) -> None:
        """Store events of the server itself, each once. Their project may be ``WHOLE_SERVER``."""
        ...

    def events(self, question: EventFilter) -> EventPage:
        """Return one page of events.

        A job has its newest 100,000 events; events of nodes are stored as long as hourly values.
        """
        ...

    @property
    def events_dropped(self) -> int:
        """Number of events deleted from jobs that had too many, since this process started."""
        ...

    def prune(self, now_ms: int) -> int:
        """Delete old events of nodes, and events of jobs that do not exist. Return their number."""
        ...

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """Return one page of jobs, and the exact number of all that match.

        Includes every committed write of any process. The state of a job without a record is derived: Running if
        sampled in the last 5 minutes, else Unknown.
        """
        ...

    def projects(self, names: frozenset[str] | None, now_ms: int) -> list[Project]:
        """Return the projects with these names (None: all) that have ever been written to, sorted."""
        ...

    def sizes(self, jobs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobSize]:
        """Return the sizes of these jobs, (project, id)."""
        ...

    def findings(self, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
        """Return the stored findings of these jobs, (project, id). Jobs without findings are left out."""
        ...

    def job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        """Return every job of that id in those projects (None: all).

        Replicas are in natural order, allocations sorted by start.
        """
        ...

    def job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        """Return the resource groups that jobs of those projects (None: all) name, by project and name."""
        ...

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str, span: TimeRange, now_ms: int
    ) -> list[JobView]:
        """Return the jobs of a resource group that live or are queued in the span, by project and id.

        Each has its replicas, and its allocations that overlap the span. A job without a record lives until 5 minutes
        after its last sample.
        """
        ...

    def job_views(self, jobs: Iterable[tuple[str, str]], span: TimeRange, now_ms: int) -> list[JobView]:
        """Return these jobs, (project, id), by project and id, with replicas, and allocations that overlap the span."""
        ...

    def job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        """Return the jobs of ``job`` without replicas and allocations, for the hot path.

        Writes of another process may appear a second late.
        """
        ...

    def allocations(self, project: str, job: str) -> list[Allocation]:
        """Return the allocations of one job, by start."""
        ...

    def delete_job(self, project: str, job: str) -> bool:
        """Delete a job's record and its events. Return False if there was no record."""
        ...

    def nodes(self, projects: frozenset[str] | None, names: frozenset[str] | None = None) -> list[Node]:
        """Return the nodes with these names (None: all), by cluster and name."""
        ...

    def retention(self, project: str) -> Retention:
        """Return the retention of a project's samples: its own setting, else the server's.

        A setting of another process may appear a second late. If the database does not answer, the last value read
        applies.
        """
        ...

    def set_retention(self, project: str, retention: Retention | None) -> None:
        """Set the retention of a project; None removes its setting."""
        ...

    def recorded_since(self, mark: tuple[int, int] | None) -> tuple[list[tuple[str, str]] | None, tuple[int, int]]:
        """Return the (project, id) of jobs that were recorded or deleted since a mark, and the next mark.

        None instead of jobs if the mark is older than the records of changes. Without a mark, the changes of the last
        ten minutes or more. A job may repeat.
        """
        ...

    def take_lease(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        """Acquire or extend a lease until a time. Return False if another owner has it."""
        ...

    def give_back_lease(self, name: str, owner: str) -> None:
        """Release a lease; a no-op if another owner has it."""
        ...

    def add_key(self, key: StoredKey) -> None:
        """Store a new key."""
        ...

    def keys(self, projects: frozenset[str] | None = None) -> list[StoredKey]:
        """Return keys by creation, revoked keys included."""
        ...

    def links(self, project: str, job: str) -> list[StoredKey]:
        """Return the keys that open that job alone, by creation, expired keys included."""
        ...

    def delete_keys(self, key_ids: Sequence[str]) -> None:
        """Delete keys; a no-op for unknown ids."""
        ...

    def key_by_token(self, token_hash: bytes) -> StoredKey | None:
        """Return the key with that token digest, revoked or not."""
        ...

    def key_by_access_key(self, access_key_id: str) -> StoredKey | None:
        """Return the key with that access key id, revoked or not."""
        ...

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        """Revoke a key. Return False if there is no valid key of that id."""
        ...

    def set_policies(self, key_id: str, policies: str) -> bool:
        """Replace the policies of a key, in the form of ``StoredKey``.

        Return False if there is no valid key of that id.
        """
        ...

    def add_usage(self, writer: str, batch: int, rows: Sequence[Usage], now_ms: int) -> None:
        """Add counts of calls.

        ``writer`` names the process that counted, ``batch`` grows with each of its batches. A batch that was added
        before adds nothing, so it may be sent again after an unclear failure.
        """
        ...

    def usage(self, month: str, accounts: frozenset[str] | None = None) -> list[Usage]:
        """Return the calls of a month by account (None: every account), API and operation, sorted."""
        ...

    def key_used(self, key_id: str, now_ms: int) -> None:
        """Store the time of a key's last use; a no-op for an unknown key."""
        ...

    shippers: Shippers
    """The log shippers."""

    def backup(self, directory: Path) -> None:
        """Write a consistent copy of the database into a directory, while it is in use."""
        ...

    def restore(self, directory: Path) -> None:
        """Replace an empty registry with a copy made by ``backup``."""
        ...

    def prepare(self) -> None:
        """Prepare for the first queries, and start to read the columns of listings on a thread.

        A server calls it at its start. Raises no error if the database does not answer.
        """
        ...

    def close(self) -> None:
        """Close the database."""
        ...
