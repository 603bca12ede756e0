"""Contract of collectors: their arguments and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from jobmeter.model.event import EventSource, Level
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series

_series = lru_cache(maxsize=16_384)(Series)
"""Return equal series as one object: each tick measures the series of the tick before."""

Samples = list[Sample]

Labels = tuple[tuple[str, str], ...]


class Collector(Protocol):
    """Collector of one concern of the machine. Called by one thread at a time."""

    @property
    def name(self) -> str:
        """Short name, unique among the collectors: the label of ``agent.collect.*``."""
        ...

    @property
    def metrics(self) -> Sequence[str]:
        """Every catalogue name that ``collect`` may return on any machine."""
        ...

    def collect(self, now_ms: int) -> Samples:
        """Return current samples, each at ``now_ms``. A value that cannot be read is absent, never 0.

        The first reading of a counter is preceded by a zero at the time of its start, if that time is known. An
        exception is a failure of this collector only.
        """
        ...


class RecordSource(Protocol):
    """Source of records about jobs or nodes: which jobs run, which devices they have."""

    def take_records(self, now_ms: int) -> Records:
        """Return the changes since the last call; may be empty."""
        ...


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Names of the agent's node. An empty ``project`` is that of the agent's key.

    ``resource_group`` is the group to whose capacity the node counts, empty if unset.
    """

    node: str
    cluster: str = ""
    project: str = ""
    resource_group: str = ""

    def make_node_series(self, metric: str, labels: Labels = ()) -> Series:
        """Build a series of the node."""
        return _series(metric, self.project, self.cluster, self.node, "", "", "", 0, labels)

    def make_device_series(self, metric: str, device: str, owner: "Owner | None" = None) -> Series:
        """Build a series of a device, for the replica that has it (None: without a job)."""
        if owner is None:
            return _series(metric, self.project, self.cluster, self.node, device)
        return _series(metric, self.project, self.cluster, self.node, device, owner.job, owner.replica, owner.attempt)

    def make_replica_series(self, metric: str, owner: "Owner", labels: Labels = ()) -> Series:
        """Build a series of a replica's processes on this node."""
        return _series(
            metric, self.project, self.cluster, self.node, "", owner.job, owner.replica, owner.attempt, labels
        )

    def make_event(
        self, time_ms: int, level: Level, reason: str, message: str, *, owner: "Owner | None" = None, subject: str = ""
    ) -> EventRecord:
        """Build an event of a replica on this node, or of the node without an ``owner``."""
        return EventRecord(
            time=time_ms,
            project=self.project,
            job=owner.job if owner else "",
            replica=owner.replica if owner else "",
            attempt=owner.attempt if owner else 0,
            cluster=self.cluster,
            node=self.node,
            source=EventSource.REPLICA if owner else EventSource.NODE,
            level=level,
            reason=reason,
            message=message,
            subject=subject,
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a process: one attempt of one replica of a job.

    For a device, an empty ``replica`` means several replicas of the job. An empty ``project`` is the agent's.
    """

    job: str
    replica: str
    attempt: int = 0
    project: str = ""
