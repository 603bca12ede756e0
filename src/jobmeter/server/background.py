"""Background work of a server: roll-ups, filling the window, expiring events, detecting silent jobs and nodes."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

import msgspec

from jobmeter.errors import JobmeterError
from jobmeter.model.time import MINUTE, SECOND, Clock
from jobmeter.query.meter import ACCOUNT, QueryCost
from jobmeter.registry.base import Registry
from jobmeter.registry.leases import LEASE_MS, RETRY_SECONDS, LeaseTable
from jobmeter.server.telemetry import Telemetry
from jobmeter.store.base import Store
from jobmeter.store.window.store import WindowedStore

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 60.0
PRUNE_SECONDS = 6 * 3600.0
FILL_BATCH = 256
"""Series read in one batch. Writers wait during a batch."""
_FILL_SECONDS, _RETRY_SECONDS, _FILLED_SECONDS = 0.01, 10.0, 3_600.0
_REFILL_SECONDS = 2.0
"""Interval in seconds at which a filled window is checked, if other servers may have come and gone."""
_BEGIN_SECONDS = 0.25
"""Delay after a start, in seconds. The first queries get the engine to themselves."""
_LONGEST_INTERVAL = 10.0
LATE_MS = 15 * MINUTE
"""Age in milliseconds at which an hour is rolled up. Most late samples have arrived by then."""


class Work(Protocol):
    """Background work that repeats at an interval."""

    name: str
    """Name in logs and metrics."""
    interval: float
    """Seconds between two rounds."""

    def round(self) -> None:
        """Do the work once."""
        ...


class Periodic(msgspec.Struct):
    """Background work that calls a function."""

    name: str
    interval: float
    round: Callable[[], None]


class Background(threading.Thread):
    """Thread that repeats one kind of work until ``stop``.

    Failures are logged and counted; the next round tries again.
    """

    def __init__(self, work: Work, telemetry: Telemetry) -> None:
        super().__init__(name=f"jobmeter-{work.name}", daemon=True)
        self.work = work
        self._telemetry = telemetry
        self._stopped = threading.Event()

    def run(self) -> None:
        """Run rounds until the thread is stopped."""
        while not self._stopped.wait(self.work.interval):
            self.round()

    def round(self) -> None:
        """Do the work once; log and count a failure."""
        try:
            self.work.round()
        except JobmeterError as error:
            _log.warning("%s failed: %s", self.work.name, error.message)
            self._telemetry.count_failure(self.work.name)
        except Exception:  # noqa: BLE001 - a bug in one round must not end all that follow
            _log.exception("%s failed", self.work.name)
            self._telemetry.count_failure(self.work.name)

    def stop(self) -> None:
        """Stop after the current round."""
        self._stopped.set()
        if self.is_alive():
            self.join()


@contextmanager
def use_request_budget(clock: Clock) -> Iterator[None]:
    """Run the queries of a block on the budget of one request."""
    account = ACCOUNT.set(QueryCost(clock.monotonic()))
    try:
        yield
    finally:
        ACCOUNT.reset(account)


def roll_ups(store: Store, clock: Clock, telemetry: Telemetry) -> Work:
    """Work that rolls up hours once a minute."""

    def roll_up() -> None:
        until_ms = clock.now_ms() - LATE_MS
        telemetry.count_roll_up(store.roll_up(until_ms), until_ms)

    return Periodic("roll-up", INTERVAL_SECONDS, roll_up)


def make_pruning(registry: Registry, clock: Clock) -> Work:
    """Work that deletes old node events four times a day."""

    def prune() -> None:
        deleted = registry.prune(clock.now_ms())
        if deleted:
            _log.info("%d old events deleted", deleted)

    return Periodic("prune", PRUNE_SECONDS, prune)


class Leased:
    """Background work that only one server of a shared registry does at a time.

    A round takes a lease and renews it until the round is over. While another server works, this one tries again every
    ``RETRY_SECONDS``. A server that cannot reach the registry for the length of a lease may still be working when
    another one begins.
    """

    def __init__(self, work: Work, leases: LeaseTable, clock: Clock, length_ms: int = LEASE_MS) -> None:
        self.name = work.name
        self.interval = work.interval
        self._work = work
        self._lease = leases.prepare(work.name, clock, length_ms)

    def round(self) -> None:
        """Do the work unless another server holds the lease."""
        if not self._lease.take():
            self.interval = min(self._work.interval, RETRY_SECONDS)
            return
        try:
            with self._lease.keep_renewed():
                self._work.round()
        finally:
            self.interval = self._work.interval
            with suppress(JobmeterError):  # the lease expires without our help
                self._lease.release()


class SilenceCheck:
    """Background work that marks jobs or nodes that were silent for ``least_seconds``.

    ``mark`` gets the current time, the time since which silence counts, and the least silence in milliseconds. It
    returns the number of marked entries for ``report``. Silence counts only while this server could receive data: not
    before its start, before a failed round or while the process did not run (a suspended machine, a clock that jumped).
    """

    def __init__(
        self,
        name: str,
        mark: Callable[[int, int, int], int],
        report: Callable[[int], None],
        clock: Clock,
        least_seconds: int,
    ) -> None:
        self.name = name
        self.interval = min(least_seconds / 4, _LONGEST_INTERVAL)
        self._mark = mark
        self._report = report
        self._clock = clock
        self._least_ms = least_seconds * SECOND
        self._since_ms: int | None = None
        self._last_ms = 0

    def round(self) -> None:
        """Mark jobs or nodes that have been silent for too long."""
        now_ms = self._clock.now_ms()
        since_ms, last_ms, self._since_ms, self._last_ms = self._since_ms, self._last_ms, None, now_ms
        if since_ms is None or not last_ms <= now_ms < last_ms + self._least_ms:
            since_ms = now_ms
        marked = self._mark(now_ms, since_ms, self._least_ms)
        if marked:
            self._report(marked)
        self._since_ms = since_ms


def make_loss_check(registry: Registry, clock: Clock, least_seconds: int) -> SilenceCheck:
    """Work that marks jobs as lost when their runs stop renewing their leases."""
    report = partial(_log.warning, "%d jobs were marked as lost: their runs stopped renewing their leases")
    return SilenceCheck("losses", registry.mark_lost, report, clock, least_seconds)


def make_node_watch(registry: Registry, clock: Clock, least_seconds: int) -> SilenceCheck:
    """Work that records events of nodes that stop or resume sending."""
    report = partial(_log.info, "%d events of nodes that stopped or resumed sending were recorded")
    return SilenceCheck("nodes", registry.mark_nodes, report, clock, least_seconds)


class Filling:
    """Background work that loads the newest samples from the engine into memory after a start, in batches."""

    name = "fill"

    def __init__(self, store: WindowedStore, clock: Clock) -> None:
        self.interval = _BEGIN_SECONDS
        self._store = store
        self._clock = clock
        self._began = clock.monotonic()
        self._filled = False
        self._rest_seconds = _FILLED_SECONDS if store.engine_use is None else _REFILL_SECONDS

    def round(self) -> None:
        """Load the next batch; after a failure, retry later."""
        before = self._filled
        self.interval = _RETRY_SECONDS
        self._filled = not self._store.fill(FILL_BATCH)
        self.interval = self._rest_seconds if self._filled else _FILL_SECONDS
        series = len(self._store.window)
        if before and not self._filled:
            self._began = self._clock.monotonic()
        elif self._filled and not before and series:
            passed = self._clock.monotonic() - self._began
            _log.info("loaded the newest samples of %d series into memory in %.1f s", series, passed)
