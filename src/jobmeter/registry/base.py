"""What the registry offers. One implementation over SQLAlchemy Core serves SQLite and PostgreSQL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobmeter.model.event import EventFilter, EventPage
from jobmeter.model.job import Allocation, Job, JobFilter, JobPage, JobSize, JobView, Node, Project
from jobmeter.model.record import Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import TimeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a batch of samples says of the registry's things: this replica was here from ``first_ms`` to ``last_ms``.

    Names that the samples did not carry are empty; ``job`` empty means a node alone was seen.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key as the registry keeps it: the token as a SHA-256 digest, the secret sealed. Times in epoch ms."""

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


class Registry(Protocol):
    """The relational side.

    Every method may be called from any thread and is one transaction; a failure of the database is UnavailableError.
    """

    def record(self, project: str, records: Records, now_ms: int) -> int:
        """Merge job and node records into ``project``; what a record leaves out stays. Gives the number of records.

        A record that names its own project must name this one, unless the caller settled otherwise. Events are kept
        once each, and where a record changes a state, an event tells of it. Many records are several transactions,
        between which others write. Raises InvalidRequestError naming the field: of what was sent nothing was kept
        where it is wrong in itself; where it does not fit what is known (another run's lease, an attempt that has
        ended, too many checkpoints), what came before it may have been kept. To send all of it again does no harm.
        """
        ...

    def lease(self, project: str, job: str) -> tuple[int, str] | None:
        """Until when the lease of a job lasts and who holds it, empty until it was renewed; None: it has none."""
        ...

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """Mark the running jobs lost whose leases have ended: Failed with the error ``lost``. Gives their number.

        A lease lasts ``least_ms`` at least, and is not counted from before ``heard_since_ms``: until then nobody could
        have been heard. An event tells of each.
        """
        ...

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Make sure that what samples speak of exists, and widen its times.

        That is jobs, replicas, nodes, and allocations (source ``import``) for the devices of replicas. An event tells
        of a job or replica that is now known to run; that one which nobody recorded has ended, no event tells.
        """
        ...

    def events(self, question: EventFilter) -> EventPage:
        """One page of events. A job has its newest 100,000; those of nodes are kept as long as hours of samples are."""
        ...

    @property
    def events_dropped(self) -> int:
        """How many events of jobs that have too many had to go, since this process began."""
        ...

    def prune(self, now_ms: int) -> int:
        """Delete what is kept no longer: old events of nodes, and of jobs that there are not. Gives their number."""
        ...

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """One page of jobs, and exactly how many there are: both as they are when asked, whoever wrote last.

        The state of a job that nobody recorded is derived: Running if sampled in the last 5 minutes, else Unknown.
        """
        ...

    def projects(self, names: frozenset[str] | None, now_ms: int) -> list[Project]:
        """The projects of those names (None: all) that something was ever written to, by name."""
        ...

    def sizes(self, jobs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobSize]:
        """How large each of these jobs, (project, id), is."""
        ...

    def job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView]:
        """Every job of that id in those projects (None: all), replicas in natural order, allocations by start."""
        ...

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str, span: TimeRange, now_ms: int
    ) -> list[JobView]:
        """The jobs of a resource group whose life meets the span, those that wait to begin included, by project and id.

        With their replicas, and the allocations that meet the span. A job of which only samples tell is taken to live
        on for 5 minutes after its last one.
        """
        ...

    def job_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job]:
        """As ``job``, but without replicas and allocations: what the hot path asks.

        What another process wrote may be seen a second late.
        """
        ...

    def cached_job(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[JobView] | None:
        """As ``job``, without waiting; None where the database has to be asked."""
        ...

    def cached_head(self, projects: frozenset[str] | None, job: str, now_ms: int) -> list[Job] | None:
        """As ``job_head``, without waiting; None where the database has to be asked."""
        ...

    def allocations(self, project: str, job: str) -> list[Allocation]:
        """The allocations of one job, by start."""
        ...

    def delete_job(self, project: str, job: str) -> bool:
        """Forget a job's record and its events; False when there was no record."""
        ...

    def nodes(self, projects: frozenset[str] | None) -> list[Node]:
        """The nodes, by cluster and name."""
        ...

    def retention(self, project: str) -> Retention:
        """How long a project's samples are kept: its own setting, else the server's.

        What another process set may be seen a second late.
        """
        ...

    def set_retention(self, project: str, retention: Retention | None) -> None:
        """Give a project a setting of its own, or take it back."""
        ...

    def recorded_since(self, mark: tuple[int, int] | None) -> tuple[list[tuple[str, str]] | None, tuple[int, int]]:
        """The (project, id) of jobs that were recorded or deleted since a mark, and the next mark.

        None instead of jobs where that cannot be told any more; for no mark those of the last ten minutes or more. Some
        may be told twice.
        """
        ...

    def take_lease(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        """Take a lease until a time, or keep it for longer; False while another owner has it."""
        ...

    def give_back_lease(self, name: str, owner: str) -> None:
        """Let go of a lease; nothing happens where another owner has it."""
        ...

    def add_key(self, key: StoredKey) -> None:
        """Keep a new key."""
        ...

    def keys(self, projects: frozenset[str] | None = None) -> list[StoredKey]:
        """Keys, revoked ones included, by creation."""
        ...

    def key_by_token(self, token_hash: bytes) -> StoredKey | None:
        """The key with that token digest, revoked or not."""
        ...

    def key_by_access_key(self, access_key_id: str) -> StoredKey | None:
        """The key with that access key id, revoked or not."""
        ...

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        """End a key; False when there is none of that id that still holds."""
        ...

    def key_used(self, key_id: str, now_ms: int) -> None:
        """Remember when a key was last used; nothing happens for one that there is not."""
        ...

    def backup(self, directory: Path) -> None:
        """Write a consistent copy of the database into a directory, while others use it."""
        ...

    def restore(self, directory: Path) -> None:
        """Replace an empty registry with a copy made by ``backup``."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
