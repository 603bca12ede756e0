"""Clock of the samples of an agent or a run. Steps of the wall clock do not disturb it.

See docs/decisions/0018-sample-clock.md.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from jobmeter.collect.base import NodeIdentity
from jobmeter.model.event import Level
from jobmeter.model.record import Records
from jobmeter.model.time import NS_PER_MS, SECOND, Clock

_SECOND_NS = 1_000_000_000
STEP_NS = _SECOND_NS
"""Least difference of a step; a smaller one is drift."""
STEADY_NS = 60 * _SECOND_NS
"""Time for which a step has to last before the samples follow it."""
SLEW = 0.05
"""Largest correction of drift, as a share of the elapsed time."""
_TRUST_NS = 3_600 * _SECOND_NS
"""Time after a step in which the wall clock may return to its former time without a new waiting period."""
_READ_NS = 100 * NS_PER_MS
"""Longest time between two readings that are compared. A longer one means an interruption."""
OVERLAP_MS = 300_000
"""Time ahead of its clock up to which a server accepts samples, by default."""

_log = logging.getLogger(__name__)


def read_elapsed_ns() -> int:
    """Return the nanoseconds since the machine started, including suspended time."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class ClockChange:
    """Step of the wall clock, its return, or the correction of the samples' time by it."""

    time_ms: int
    level: Level
    reason: str
    message: str


@dataclass(slots=True)
class _Offset:
    """Offset of the epoch from elapsed time, and the time since which the wall clock agrees."""

    value_ns: int
    since_ns: int


class SampleClock:
    """``Clock`` whose time is elapsed time plus a checked offset from the epoch. Thread-safe.

    ``observe`` compares it with the wall clock. Drift is followed slowly, so that intervals are accurate to 5 %. A step
    is followed once it has lasted for 60 seconds.
    """

    def __init__(self, wall: Clock, elapsed: Callable[[], int] = read_elapsed_ns) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._lock = Lock()
        self._observed_ns = elapsed()
        self._offset = _Offset(wall.now_ms() * NS_PER_MS - self._observed_ns, self._observed_ns)
        self._previous: _Offset | None = None
        self._candidate: _Offset | None = None
        self._difference_ns = 0
        self._changes: list[ClockChange] = []
        self._last_ms: int | None = None
        self._set_back = False

    @property
    def difference(self) -> float:
        """Lead in seconds of the wall clock over the samples' time at the last observation."""
        return self._difference_ns / _SECOND_NS

    def now_ns(self) -> int:
        """Return the nanoseconds since the epoch."""
        return self._elapsed() + self._offset.value_ns

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return self.now_ns() // NS_PER_MS

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return self._wall.monotonic()

    def convert_elapsed_ms(self, milliseconds: int) -> int:
        """Convert milliseconds since the start of the machine to milliseconds since the epoch."""
        return self._offset.value_ns // NS_PER_MS + milliseconds

    def measure_wall_offset_ms(self) -> int:
        """Return the milliseconds to add to a time of the wall clock: whole seconds, 0 while the clocks agree.

        The clocks are read one after the other. An exact difference would give a value that is sent twice two times.
        """
        return round((self.now_ms() - self._wall.now_ms()) / SECOND) * SECOND

    def stamp(self, *, needed: bool = False) -> int | None:
        """Observe, and return a time for new samples, later than the previous one.

        After a step back of up to five minutes it returns None until the previous time has passed, because counters
        would seem to restart; with ``needed`` it returns the next millisecond instead. After a larger step back it
        returns the new time, because no server has accepted times that far ahead.
        """
        self.observe()
        now_ms, last_ms = self.now_ms(), self._last_ms
        if last_ms is not None and last_ms - OVERLAP_MS <= now_ms <= last_ms:
            if self._set_back and not needed:
                return None
            now_ms = last_ms + 1
        else:
            self._set_back = False
        self._last_ms = now_ms
        return now_ms

    def observe(self) -> None:
        """Compare with the wall clock, and follow it if appropriate."""
        with self._lock:
            before = self._elapsed()
            wall_ns = self._wall.now_ms() * NS_PER_MS
            now = self._elapsed()
            if now - before > _READ_NS:
                return
            measured = wall_ns - now
            limit = int(max(now - self._observed_ns, 0) * SLEW)
            self._observed_ns = now
            self._difference_ns = measured - self._offset.value_ns
            if abs(self._difference_ns) <= STEP_NS:
                self._note_return()
                self._offset.value_ns += max(-limit, min(limit, self._difference_ns))
            else:
                self._note_step(_Offset(measured, now))

    def take_changes(self) -> list[ClockChange]:
        """Return the changes of the wall clock since the last call."""
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    def _note_step(self, measured: _Offset) -> None:
        if (
            self._previous
            and _is_near(measured, self._previous)
            and measured.since_ns - self._offset.since_ns < _TRUST_NS
        ):
            self._follow(measured)
        elif self._candidate is None or not _is_near(measured, self._candidate):
            self._candidate = measured
            self._report(
                Level.WARNING,
                "ClockStepped",
                f"The wall clock differs from the time of samples by {self.difference:+.1f} s. "
                f"Samples follow it when this lasts for {STEADY_NS // _SECOND_NS} seconds.",
            )
        elif measured.since_ns - self._candidate.since_ns >= STEADY_NS:
            self._follow(measured)

    def _follow(self, measured: _Offset) -> None:
        message = f"The time of samples was corrected by {self.difference:+.1f} s, to the wall clock."
        self._previous, self._offset, self._candidate = self._offset, measured, None
        self._set_back = self._set_back or self._difference_ns < 0
        self._difference_ns = 0
        self._report(Level.WARNING, "ClockCorrected", message)

    def _note_return(self) -> None:
        if self._candidate is not None:
            self._candidate = None
            self._report(Level.INFO, "ClockReturned", "The wall clock agrees with the time of samples again.")

    def _report(self, level: Level, reason: str, message: str) -> None:
        _log.warning("%s", message)
        self._changes = [*self._changes[-63:], ClockChange(self.now_ms(), level, reason, message)]


def _is_near(left: _Offset, right: _Offset) -> bool:
    return abs(left.value_ns - right.value_ns) <= STEP_NS


class ClockReporter:
    """Record source: an event of the node for each change of its clock."""

    def __init__(self, place: NodeIdentity, clock: SampleClock) -> None:
        self._place = place
        self._clock = clock

    def take_records(self, now_ms: int) -> Records:  # noqa: ARG002 - the changes have times of their own
        """Return the events since the last call."""
        changes = self._clock.take_changes()
        return Records(
            events=[self._place.make_event(one.time_ms, one.level, one.reason, one.message) for one in changes]
        )
