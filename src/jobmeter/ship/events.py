"""Events about shippers. Their object is the shipper; they contain no secrets."""

from collections import Counter

from jobmeter.model.event import Level
from jobmeter.model.shipper import Shipper
from jobmeter.model.time import Clock
from jobmeter.registry.base import Registry
from jobmeter.registry.emit import emit

QUIET_SECONDS = 60.0
"""Shortest time in seconds between two events of one kind and shipper; the next one includes losses in between."""


def record_creation(registry: Registry, now_ms: int, shipper: Shipper, actor: str) -> None:
    """Record that a shipper was created, and by whom."""
    message = f"The logs of {shipper.resource_group} are shipped to {_sink(shipper)}."
    _emit(registry, now_ms, shipper, "ShipperCreated", message, actor=actor)


def record_deletion(registry: Registry, now_ms: int, shipper: Shipper, actor: str) -> None:
    """Record that a shipper was deleted, by whom, and its last state."""
    message = f"The logs of {shipper.resource_group} are not shipped to {_sink(shipper)} any more"
    message += f". {shipper.waiting} waiting lines were not shipped." if shipper.waiting else "."
    _emit(registry, now_ms, shipper, "ShipperDeleted", message, actor=actor)


def record_skipped_lines(registry: Registry, now_ms: int, shipper: Shipper, whose: str, lines: int) -> None:
    """Record that lines of a job or a node are not shipped: too many came before its group was known."""
    message = (
        f"{lines} log lines of {whose} arrived before its group {shipper.resource_group} was known. "
        f"They exceeded the limit and were not shipped to {_sink(shipper)}."
    )
    _emit(registry, now_ms, shipper, "ShipperDropped", message, Level.ERROR)


class ShipperEvents:
    """Recorder of one shipper's events while it works. For one thread.

    A sink that fails and recovers repeatedly is reported once a minute; its recovery is reported only after a reported
    failure.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._reported: dict[str, float] = {}
        self._failing = False
        self._lost: Counter[str] = Counter()

    def begin(self, shipper: Shipper) -> None:
        """Continue from a shipper's stored state: a current failure was already reported."""
        self._failing = bool(shipper.error)

    def record_failure(self, shipper: Shipper, error: str) -> None:
        """Record that the sink does not accept lines."""
        if self._failing or not self._is_due("failed"):
            return
        self._failing = True
        message = f"The sink {_sink(shipper)} of the logs of {shipper.resource_group} does not accept lines: {error}."
        self._emit_event(shipper, "ShipperFailed", message, Level.WARNING)

    def record_success(self, shipper: Shipper) -> None:
        """Record that the sink accepts lines again."""
        if not self._failing:
            return
        self._failing = False
        message = f"The sink {_sink(shipper)} of the logs of {shipper.resource_group} accepts lines again."
        self._emit_event(shipper, "ShipperRecovered", message)

    def count_lost(self, shipper: Shipper, *, dropped: int = 0, rejected: int = 0) -> None:
        """Count lines that expired before delivery, or were permanently refused."""
        self._lost.update(dropped=dropped, rejected=rejected)
        self.flush(shipper)

    def flush(self, shipper: Shipper, *, now: bool = False) -> None:
        """Report losses since the last report, at most once a minute; ``now`` skips the limit."""
        if not self._lost.total() or not (now or self._is_due("lost")):
            return
        self._reported["lost"] = self._clock.monotonic()
        for reason, lines, why in (
            ("ShipperDropped", self._lost.pop("dropped", 0), "expired before delivery"),
            ("ShipperRejected", self._lost.pop("rejected", 0), "were permanently refused"),
        ):
            if lines:
                message = (
                    f"{lines} log lines of {shipper.resource_group} {why} and were not shipped to {_sink(shipper)}."
                )
                self._emit_event(shipper, reason, message, Level.ERROR)

    def _is_due(self, kind: str) -> bool:
        now = self._clock.monotonic()
        if now - self._reported.get(kind, float("-inf")) < QUIET_SECONDS:
            return False
        self._reported[kind] = now
        return True

    def _emit_event(self, shipper: Shipper, reason: str, message: str, level: Level = Level.INFO) -> None:
        _emit(self._registry, self._clock.now_ms(), shipper, reason, message, level)


def _emit(
    registry: Registry,
    now_ms: int,
    shipper: Shipper,
    reason: str,
    message: str,
    level: Level = Level.INFO,
    actor: str = "",
) -> None:
    emit(
        registry,
        now_ms,
        reason,
        message,
        subject=f"shipper {shipper.id}",
        project=shipper.project or None,
        level=level,
        actor=actor,
    )


def _sink(shipper: Shipper) -> str:
    return f"{shipper.sink_project}/{shipper.logstore}"
