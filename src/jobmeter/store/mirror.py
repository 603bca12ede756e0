"""Memory that follows the writes of a leading server."""

from collections.abc import Sequence
from typing import Protocol

from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention


class LeaderStore(Protocol):
    """The part of a store that a leading server offers to the servers that follow it. See ``Store``."""

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = ...) -> None:
        """Append each batch in order. On return all of them are durable."""
        ...

    def roll_up(self, until_ms: int) -> int:
        """Compute missing roll-ups. Return the number of hours computed."""
        ...

    def delete_job(self, job: int) -> None:
        """Delete every sample, roll-up, series, log line and span of a job key."""
        ...


class MirroredMemory(LeaderStore, Protocol):
    """Store with the newest samples in memory, which follows the writes of a leading server."""

    def trust(self, *, trusted: bool) -> None:
        """Empty the memory, and answer from it or not from now on."""
        ...

    def renew(self) -> None:
        """Let other processes answer from the memory as long as it counts now. The function does not wait."""
        ...

    def apply(self, batches: Sequence[SampleBatch], immutable_ms: int) -> None:
        """Take samples that the leader has stored. Hours before ``immutable_ms`` may be rolled up."""
        ...

    def invalidate(self, jobs: Sequence[int] | None, *, dropped: bool) -> None:
        """Note that other data of some jobs changed; None for all. ``dropped``: their samples are void."""
        ...
