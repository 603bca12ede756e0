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
    from jobmeter.registry.pods import PodTable
    from jobmeter.registry.tasks import TaskTable


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the last time, in epoch ms, at which a batch has samples of one replica, device or node.

    Names that the samples do not have are empty. An empty ``job`` means samples of a node itself.
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
    """The policies attached to it, as JSON; empty for none."""
    job: str = ""
    """Of a link: the one job that it opens; empty for every other key."""
    expires: int | None = None
    """When it ends by itself; None: never."""


class Memory(Protocol):
    """What a registry has in memory. No method waits; each gives what the registry's does, None for what is not there.

    Every method may be called from any thread.
    """

    def job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView] | None:
        """See ``Registry.job``."""
        ...

    def job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job] | None:
        """See ``Registry.job_head``."""
        ...

    def retention(self, project: str) -> Retention | None:
        """See ``Registry.retention``."""
        ...


class Registry(Protocol):
    """The relational side.

    Every method may be called from any thread and is one transaction; a failure of the database is UnavailableError.
    """

    tasks: "TaskTable"
    """The diagnostic tasks."""
    pods: "PodTable"
    """Which replicas pods are."""
    memory: Memory
    """What is found without waiting."""

    def record(self, project: str, records: Records, now_ms: int) -> int:
        """Merge job and node records into ``project``; what a record leaves out stays. Gives the number of records.

        A record that names its own project must name this one, unless the caller decided otherwise. Events are stored
        once each, and a record that changes a state adds an event. Many records are several transactions,
        between which others write. Raises InvalidRequestError naming the field: of what was sent nothing was stored
        where it is wrong in itself; where it does not fit what is stored (another run's lease, an attempt that has
        ended, too many checkpoints), what came before it may have been stored. To send all of it again does no harm.
        """
        ...

    def lease(self, project: str, job: str) -> tuple[int, str] | None:
        """The end of a job's lease and its owner, who is empty until the first renewal; None without a lease."""
        ...

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark the running jobs lost whose leases have ended: Failed with the error ``lost``. Gives their number.

        A lease lasts ``least_ms`` at least. It is not counted from before ``heard_since_ms``, when no renewal could be
        received. Each adds an event.
        """
        ...

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Create the jobs, replicas, nodes and allocations that samples name, where missing, and extend their times.

        Allocations (source ``import``) are those of the devices of replicas. A job or replica that begins to run adds
        an event; the end of one that no record describes does not.
        """
        ...

    def mark_nodes(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark nodes down that sent nothing for ``least_ms``, and those up that send again. Gives the number of events.

        Only nodes that described themselves are watched; one with a long interval may be silent for five of them.
        Silence is not counted from before ``heard_since_ms``. Each change adds an event.
        """
        ...

    def add_events(self, happened: Sequence[Event]) -> None:
        """Store events of the program itself, each once. Their project may be ``WHOLE_SERVER``."""
        ...

    def events(self, question: EventFilter) -> EventPage:
        """One page of events. A job has its newest 100,000; those of nodes are stored as long as hours."""
        ...

    @property
    def events_dropped(self) -> int:
        """Events deleted from jobs that had too many, since this process began."""
        ...

    def prune(self, now_ms: int) -> int:
        """Delete old events of nodes, and events of jobs that do not exist. Gives their number."""
        ...

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """One page of jobs, and the exact number of all that match, with every write of any process that has ended.

        The state of a job without a record is derived: Running if sampled in the last 5 minutes, else Unknown.
        """
        ...

    def projects(self, names: frozenset[str] | None, now_ms: int) -> list[Project]:
        """The projects of those names (None: all) that were ever written to, sorted."""
        ...

    def sizes(self, jobs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobSize]:
        """How large each of these jobs, (project, id), is."""
        ...

    def findings(self, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
        """What is stored of the findings of those of these jobs, (project, id), that have any."""
        ...

    def job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        """Every job of that id in those projects (None: all), replicas in natural order, allocations by start."""
        ...

    def job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        """The resource groups that jobs of those projects (None: all) name, by project and name."""
        ...

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str, span: TimeRange, now_ms: int
    ) -> list[JobView]:
        """The jobs of a resource group whose life meets the span, those that wait to begin included, by project and id.

        With their replicas, and the allocations that meet the span. A job without a record lives until 5 minutes after
        its last sample.
        """
        ...

    def job_views(self, jobs: Iterable[tuple[str, str]], span: TimeRange, now_ms: int) -> list[JobView]:
        """Those jobs, (project, id), with their replicas, and the allocations that meet the span, by project and id."""
        ...

    def job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        """As ``job``, but without replicas and allocations, for the hot path.

        Writes of another process may appear a second late.
        """
        ...

    def allocations(self, project: str, job: str) -> list[Allocation]:
        """The allocations of one job, by start."""
        ...

    def delete_job(self, project: str, job: str) -> bool:
        """Forget a job's record and its events; False when there was no record."""
        ...

    def nodes(self, projects: frozenset[str] | None, names: frozenset[str] | None = None) -> list[Node]:
        """The nodes, by cluster and name; ``names`` None: all of them, else those of that name."""
        ...

    def retention(self, project: str) -> Retention:
        """How long a project's samples are stored: its own setting, else the server's.

        A setting of another process may take a second. While the database does not answer: as it was read last.
        """
        ...

    def set_retention(self, project: str, retention: Retention | None) -> None:
        """Set the retention of a project; None removes its setting."""
        ...

    def recorded_since(self, mark: tuple[int, int] | None) -> tuple[list[tuple[str, str]] | None, tuple[int, int]]:
        """The (project, id) of jobs that were recorded or deleted since a mark, and the next mark.

        None instead of jobs when the mark is older than the records of changes. Without a mark, those of the last ten
        minutes or more. Some may be given twice.
        """
        ...

    def take_lease(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        """Acquire or extend a lease until a time; False while another owner has it."""
        ...

    def give_back_lease(self, name: str, owner: str) -> None:
        """Release a lease; a no-op when another owner has it."""
        ...

    def add_key(self, key: StoredKey) -> None:
        """Store a new key."""
        ...

    def keys(self, projects: frozenset[str] | None = None) -> list[StoredKey]:
        """Keys, revoked ones included, by creation."""
        ...

    def links(self, project: str, job: str) -> list[StoredKey]:
        """The keys that open that one job, ended ones included, by creation."""
        ...

    def delete_keys(self, key_ids: Sequence[str]) -> None:
        """Forget keys; nothing happens for those that there are not."""
        ...

    def key_by_token(self, token_hash: bytes) -> StoredKey | None:
        """The key with that token digest, revoked or not."""
        ...

    def key_by_access_key(self, access_key_id: str) -> StoredKey | None:
        """The key with that access key id, revoked or not."""
        ...

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        """Revoke a key; False when there is no valid one of that id."""
        ...

    def set_policies(self, key_id: str, policies: str) -> bool:
        """Replace the policies of a key, as ``StoredKey`` has them; False when there is no valid one."""
        ...

    def add_usage(self, writer: str, batch: int, rows: Sequence[Usage], now_ms: int) -> None:
        """Add counts of calls.

        ``writer`` names the process that counted, ``batch`` grows with each of its batches. A batch that was added
        before adds nothing, so it may be sent again after an unclear failure.
        """
        ...

    def usage(self, month: str, accounts: frozenset[str] | None = None) -> list[Usage]:
        """The calls of a month by account, API and operation, sorted; ``accounts`` None: of every account."""
        ...

    def key_used(self, key_id: str, now_ms: int) -> None:
        """Store when a key was last used; a no-op for a key that does not exist."""
        ...

    shippers: Shippers
    """The log shippers."""

    def backup(self, directory: Path) -> None:
        """Write a consistent copy of the database into a directory, while others use it."""
        ...

    def restore(self, directory: Path) -> None:
        """Replace an empty registry with a copy made by ``backup``."""
        ...

    def prepare(self) -> None:
        """Be ready for the first questions about jobs, and begin to read what listings need, on a thread.

        A server that starts calls it. Raises nothing when the database does not answer.
        """
        ...

    def close(self) -> None:
        """Close the database."""
        ...
