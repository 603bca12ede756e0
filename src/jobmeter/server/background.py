"""What a server does without being asked: roll-ups."""

import logging
import threading

from jobmeter.errors import JobmeterError
from jobmeter.model.time import MINUTE, Clock
from jobmeter.server.telemetry import Telemetry
from jobmeter.store.base import Store

_log = logging.getLogger("jobmeter.server")

INTERVAL_SECONDS = 60.0
SETTLE_MS = 15 * MINUTE
"""An hour is rolled up when it has been over for this long: most late samples have come by then."""


class RollUps(threading.Thread):
    """Rolls hours up once a minute until ``stop``."""

    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry, interval: float = INTERVAL_SECONDS) -> None:
        super().__init__(name="jobmeter-roll-up", daemon=True)
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._interval = interval
        self._stopped = threading.Event()

    def run(self) -> None:
        """The thread's work."""
        while not self._stopped.wait(self._interval):
            self.round()

    def round(self) -> None:
        """Roll up what is due. A failure is logged and counted; the next round tries again."""
        until_ms = self._clock.now_ms() - SETTLE_MS
        try:
            hours = self._store.roll_up(until_ms)
        except JobmeterError as error:
            _log.warning("roll-up failed: %s", error.message)
            self._telemetry.failed("roll-up")
        except Exception:  # noqa: BLE001 - a bug in one round must not end all that follow
            _log.exception("roll-up failed")
            self._telemetry.failed("roll-up")
        else:
            self._telemetry.rolled(hours, until_ms)

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopped.set()
        if self.is_alive():
            self.join()
