"""Run one collector in a thread, so that its failures and hangs do not affect others."""

import logging
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from jobmeter.collect.base import Collector, Samples
from jobmeter.collect.call_thread import CallThread
from jobmeter.model.time import Clock

_TRIES = 3
"""Consecutive failures after which a collector is suspended."""
_LONGEST_REST = 64
"""Most turns for which a failing collector is suspended."""
_STOP_SECONDS = 0.1
"""Longest wait in seconds for a collector after a stop request."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """Result of a turn of a collector. ``success`` is False if it failed, hangs, or is suspended."""

    success: bool
    duration: float
    samples: Samples = field(default_factory=list)


class Worker:
    """Runs a collector, waits for it at most ``timeout`` seconds, and never runs it twice at once.

    After three failures in a row the collector is suspended for 2, then 4, up to 64 turns.
    """

    def __init__(self, collector: Collector, every_ms: int, clock: Clock, timeout: float = 5.0) -> None:
        self.name = collector.name
        self.timeout = timeout
        self._collector = collector
        self._every_ms = every_ms
        self._clock = clock
        self._due_ms = 0
        self._calls: CallThread[Outcome] = CallThread(f"collect {collector.name}")
        self._started = 0.0
        self._overdue = False
        self._suspended = False
        self._failures = 0
        self._resting = 0

    def begin(self, now_ms: int, *, force: bool = False) -> bool:
        """Start a turn if one is due (``force``: even if not) and the last one has returned.

        True if ``finish`` will have a result.
        """
        turn_ms = int(self._clock.monotonic() * 1000)
        if not force and turn_ms < self._due_ms:
            return False
        # A slightly early turn counts as on time: the loop's ticks are not exact to the millisecond.
        self._due_ms = turn_ms + self._every_ms - self._every_ms // 10
        self._suspended = bool(self._resting) and not force
        if self._suspended:
            self._resting -= 1
            return True
        self._overdue = not self._calls.begin(partial(self._take_turn, now_ms))
        if not self._overdue:
            self._started = self._clock.monotonic()
        return True

    def finish(self, deadline: float, stop: Event | None = None) -> Outcome:
        """Return the result of the turn. A collector that has not returned by ``deadline`` (monotonic seconds) hangs.

        A collector that hung before is not awaited again. The wait ends soon after ``stop`` is set.
        """
        if self._suspended:
            return Outcome(success=False, duration=0.0)
        while self._calls.busy and not self._overdue:
            patience = deadline - self._clock.monotonic()
            if patience <= 0 or self._calls.wait(min(patience, _STOP_SECONDS)) or (stop and stop.is_set()):
                break
        if not self._calls.busy:
            return self._calls.get_result()
        return Outcome(success=False, duration=self._clock.monotonic() - self._started)

    def _take_turn(self, now_ms: int) -> Outcome:
        started = self._clock.monotonic()
        try:
            samples = self._collector.collect(now_ms)
        except Exception as error:  # noqa: BLE001 - a collector may fail in any way and must not take others along
            self._note_failure(error)
            return Outcome(success=False, duration=self._clock.monotonic() - started)
        self._failures = 0
        outcome = Outcome(success=True, duration=self._clock.monotonic() - started, samples=samples)
        if outcome.duration > self.timeout:
            outcome.samples = []  # the loop has ticked since: their time would be wrong
        return outcome

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            _log.warning("collector %s failed: %s: %s", self.name, type(error).__name__, error)
        if self._failures >= _TRIES:
            self._resting = min(2 ** (self._failures - _TRIES + 1), _LONGEST_REST)
