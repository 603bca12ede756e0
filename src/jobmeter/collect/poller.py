"""Poll the server in a thread."""

import logging
from threading import Event, Thread

from jobmeter.errors import JobmeterError, NotFoundError

_log = logging.getLogger(__name__)


class ServerPoller:
    """Thread that polls every interval, limited to a range of seconds, until another poll is useless."""

    useless: tuple[type[JobmeterError], ...] = (NotFoundError,)
    """Errors after which no further poll is made: the server has no such endpoint, or refuses."""

    def __init__(self, subject: str, interval_ms: int, shortest: float, longest: float) -> None:
        """``subject`` names the thread and the polls in the log."""
        self.answers = True
        """True unless the last poll failed."""
        self._subject = subject
        self._seconds = min(max(interval_ms / 1000, shortest), longest)
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"poll {subject}", daemon=True)

    def start(self) -> None:
        """Start polling. The first poll comes after an interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling. A running poll is not awaited."""
        self._stopping.set()

    def poll_once(self) -> int:
        """Poll once. Return the number of answered requests."""
        raise NotImplementedError

    def try_once(self) -> bool:
        """Poll once and log a failure. False if another poll is useless."""
        try:
            self.poll_once()
        except self.useless as error:
            self.answers = False
            _log.info("polling for %s stopped: %s", self._subject, error.message)
            return False
        except JobmeterError as error:
            self.answers = False
            _log.debug("polling for %s failed: %s", self._subject, error.message)
        except Exception:  # noqa: BLE001 - the thread has to live
            _log.exception("polling for %s failed", self._subject)
        else:
            self.answers = True
        return True

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            if not self.try_once():
                return
