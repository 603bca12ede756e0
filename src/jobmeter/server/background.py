"""Background work of a server: roll-ups, filling the window, expired events, jobs and nodes that fell silent."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

import msgspec

from jobmeter.errors import JobmeterError
from jobmeter.model.time import MINUTE, SECOND, Clock
from jobmeter.query.meter import ACCOUNT, Spent
from jobmeter.registry.base import Registry
from jobmeter.server.telemetry import Telemetry
from jobmeter.store.base import Store
from jobmeter.store.window.store import WindowedStore

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 60.0
PRUNE_SECONDS = 6 * 3600.0
FILL_BATCH = 256
"""Series that are read while writers wait."""
_FILL_SECONDS, _RETRY_SECONDS, _FILLED_SECONDS = 0.01, 10.0, 3_600.0
_BEGIN_SECONDS = 0.25
"""After a start: who waits for its first answer has the engine to themselves."""
_LONGEST_INTERVAL = 10.0
LEASE_MS = 5 * MINUTE
"""Length of a lease: longer than clocks of servers differ."""
LATE_MS = 15 * MINUTE
"""An hour is rolled up when it has been over for this long: most late samples have come by then."""


class Work(Protocol):
    """Something to do again and again."""

    name: str
    """Its name in logs and counts."""
    interval: float
    """Seconds between two rounds."""

    def round(self) -> None:
        """Do it once."""
        ...


class Periodic(msgspec.Struct):
    """See ``Work``: a function."""

    name: str
    interval: float
    round: Callable[[], None]


class Background(threading.Thread):
    """Does one kind of work until ``stop``. A failure is logged and counted; the next round tries again."""

    def __init__(self, work: Work, telemetry: Telemetry) -> None:
        super().__init__(name=f"jobmeter-{work.name}", daemon=True)
        self._work = work
        self._telemetry = telemetry
        self._stopped = threading.Event()

    def run(self) -> None:
        """The thread's work."""
        while not self._stopped.wait(self._work.interval):
            self.round()

    def round(self) -> None:
        """One round."""
        try:
            self._work.round()
        except JobmeterError as error:
            _log.warning("%s failed: %s", self._work.name, error.message)
            self._telemetry.failed(self._work.name)
        except Exception:  # noqa: BLE001 - a bug in one round must not end all that follow
            _log.exception("%s failed", self._work.name)
            self._telemetry.failed(self._work.name)

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopped.set()
        if self.is_alive():
            self.join()


@contextmanager
def accounted(clock: Clock) -> Iterator[None]:
    """A block whose queries together have the budget of one request."""
    account = ACCOUNT.set(Spent(clock.monotonic()))
    try:
        yield
    finally:
        ACCOUNT.reset(account)


def roll_ups(store: Store, clock: Clock, telemetry: Telemetry) -> Work:
    """Rolls hours up once a minute."""

    def roll_up() -> None:
        until_ms = clock.now_ms() - LATE_MS
        telemetry.rolled(store.roll_up(until_ms), until_ms)

    return Periodic("roll-up", INTERVAL_SECONDS, roll_up)


def pruning(registry: Registry, clock: Clock) -> Work:
    """Deletes old events of nodes four times a day."""

    def prune() -> None:
        deleted = registry.prune(clock.now_ms())
        if deleted:
            _log.info("%d old events deleted", deleted)

    return Periodic("prune", PRUNE_SECONDS, prune)


class Leased:
    """See ``Work``: one that of several servers on one registry only one does at a time.

    A round takes a lease, which it renews until the round is over. A server that dies holds it for
    ``LEASE_MS`` at most, by the clocks of the others. A server that cannot reach the registry for as long as that may
    still be at work while another one begins.
    """

    def __init__(self, work: Work, leases: Registry, clock: Clock, length_ms: int = LEASE_MS) -> None:
        self.name = work.name
        self.interval = work.interval
        self._work = work
        self._leases = leases
        self._clock = clock
        self._length_ms = length_ms
        self._owner = secrets.token_hex(8)

    def round(self) -> None:
        """Do it, unless another server is at it."""
        if not self._take():
            return
        over = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(over,), name=f"jobmeter-{self.name}-lease", daemon=True)
        renewing.start()
        try:
            self._work.round()
        finally:
            over.set()
            renewing.join()
            with suppress(JobmeterError):  # it ends by itself
                self._leases.give_back_lease(self.name, self._owner)

    def _take(self) -> bool:
        now_ms = self._clock.now_ms()
        return self._leases.take_lease(self.name, self._owner, now_ms, now_ms + self._length_ms)

    def _renew(self, over: threading.Event) -> None:
        while not over.wait(self._length_ms / SECOND / 4):
            try:
                leased = self._take()
            except JobmeterError as error:
                _log.warning("the lease of %s was not renewed: %s", self.name, error.message)
                continue
            except Exception:  # noqa: BLE001 - what goes wrong once may go right before the lease is over
                _log.exception("the lease of %s was not renewed", self.name)
                continue
            if not leased:
                _log.error("another server began with %s while this one is at it", self.name)


class SilenceCheck:
    """See ``Work``. Marks what was silent for ``least_seconds`` while this server could hear it.

    ``mark`` gets the time, since when silence counts, and for how long it has to last (milliseconds); it gives how many
    it marked, which ``report`` gets. Silence before the server's start does not count. Nor does silence before a round
    that failed, or during a time in which the server did not run (a suspended machine, a clock that jumped).
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
        """Mark what is due."""
        now_ms = self._clock.now_ms()
        since_ms, last_ms, self._since_ms, self._last_ms = self._since_ms, self._last_ms, None, now_ms
        if since_ms is None or not last_ms <= now_ms < last_ms + self._least_ms:
            since_ms = now_ms
        marked = self._mark(now_ms, since_ms, self._least_ms)
        if marked:
            self._report(marked)
        self._since_ms = since_ms


def losses(registry: Registry, clock: Clock, least_seconds: int) -> SilenceCheck:
    """Marks the jobs lost whose runs stopped renewing their leases."""
    report = partial(_log.warning, "%d jobs are marked lost: their runs stopped renewing their leases")
    return SilenceCheck("losses", registry.mark_lost, report, clock, least_seconds)


def node_watch(registry: Registry, clock: Clock, least_seconds: int) -> SilenceCheck:
    """Records events of nodes that stopped sending, and of those that send again."""
    report = partial(_log.info, "%d events of nodes that stopped or resumed sending were recorded")
    return SilenceCheck("nodes", registry.mark_nodes, report, clock, least_seconds)


class Filling:
    """See ``Work``. After a start brings the newest samples from the engine into memory, some series at a time."""

    name = "fill"

    def __init__(self, store: WindowedStore, clock: Clock) -> None:
        self.interval = _BEGIN_SECONDS
        self._store = store
        self._clock = clock
        self._began = clock.monotonic()
        self._filled = False

    def round(self) -> None:
        """Take in some more; after a failure, a while later."""
        if self._filled:
            return
        self.interval = _RETRY_SECONDS
        self._filled = not self._store.fill(FILL_BATCH)
        self.interval = _FILLED_SECONDS if self._filled else _FILL_SECONDS
        series = len(self._store.window)
        if self._filled and series:
            passed = self._clock.monotonic() - self._began
            _log.info("the newest samples of %d series were brought to memory in %.1f s", series, passed)
