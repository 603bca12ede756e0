"""Background work of a server: roll-ups, filling the window, and deleting expired events."""

import logging
import secrets
import threading
from contextlib import suppress
from typing import Protocol

from jobmeter.errors import JobmeterError
from jobmeter.model.time import MINUTE, SECOND, Clock
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
LEASE_MS = 5 * MINUTE
"""Length of a lease: longer than clocks of servers differ."""
LATE_MS = 15 * MINUTE
"""An hour is rolled up when it has been over for this long: most late samples have come by then."""


class Work(Protocol):
    """Something to do again and again."""

    @property
    def name(self) -> str:
        """Its name in logs and counts."""
        ...

    @property
    def interval(self) -> float:
        """Seconds between two rounds."""
        ...

    def round(self) -> None:
        """Do it once."""
        ...


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


class RollUps:
    """See ``Work``. Rolls hours up once a minute."""

    name = "roll-up"

    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry, interval: float = INTERVAL_SECONDS) -> None:
        self.interval = interval
        self._store = store
        self._clock = clock
        self._telemetry = telemetry

    def round(self) -> None:
        """Roll up what is due."""
        until_ms = self._clock.now_ms() - LATE_MS
        self._telemetry.rolled(self._store.roll_up(until_ms), until_ms)


class Leases(Protocol):
    """The leases of a shared registry; see ``Registry``."""

    def take_lease(self, name: str, owner: str, now_ms: int, until_ms: int) -> bool:
        """See ``Registry.take_lease``."""
        ...

    def give_back_lease(self, name: str, owner: str) -> None:
        """See ``Registry.give_back_lease``."""
        ...


class Leased:
    """See ``Work``: one that of several servers on one registry only one does at a time.

    A round takes a lease, which it renews until the round is over. A server that dies holds it for
    ``LEASE_MS`` at most, by the clocks of the others. A server that cannot reach the registry for as long as that may
    still be at work while another one begins.
    """

    def __init__(self, work: Work, leases: Leases, clock: Clock, length_ms: int = LEASE_MS) -> None:
        self.name = work.name
        self._work = work
        self._leases = leases
        self._clock = clock
        self._length_ms = length_ms
        self._owner = secrets.token_hex(8)

    @property
    def interval(self) -> float:
        """See ``Work.interval``."""
        return self._work.interval

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
            if not leased:
                _log.error("another server began with %s while this one is at it", self.name)


class Pruning:
    """See ``Work``. Deletes old events of nodes four times a day."""

    name = "prune"
    interval = PRUNE_SECONDS

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    def round(self) -> None:
        """Delete what is due."""
        deleted = self._registry.prune(self._clock.now_ms())
        if deleted:
            _log.info("%d old events deleted", deleted)


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
