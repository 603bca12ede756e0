"""A circuit breaker before PostgreSQL: while it does not answer, nobody waits for it.

A server that is stopped, frozen or cut off by the network takes connections and answers nothing. So what is sent has to
be answered within a patience. The first that is not, or a lost connection, opens the breaker: every call fails without
waiting, and one thread checks every second whether the server answers again.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy import exc

from jobmeter.errors import UnavailableError

_log = logging.getLogger(__name__)
PATIENCE_SECONDS = 60.0
"""How long one statement may take: longer than one waits for a lock."""
SHORT_SECONDS = 3.0
"""The same for those on the way of every request."""
OBSERVE_SECONDS = 10.0
"""The same for sightings from samples, for which their senders wait."""
SLOW_SECONDS = 3_600.0
"""The same for what may change a whole table."""
PROBE_SECONDS = 1.0
_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE_SECONDS)


def patience_seconds() -> float:
    """How long the answer to a statement may take here."""
    return _patience.get()


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Wait so long at most for the answer to each statement of the block."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


class Breaker:
    """See the module. ``probe`` runs any query on a connection of its own. Thread safe."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._check = probe
        self._lock = threading.Lock()
        self._open = False
        self._closed = threading.Event()

    def check(self) -> None:
        """Raise UnavailableError while the server does not answer."""
        if self._open:
            raise UnavailableError("the registry does not work now: its database does not answer")

    def note(self, error: BaseException) -> None:
        """Open where a failure is one of the connection."""
        if not _is_lost(error):
            return
        with self._lock:
            if self._open or self._closed.is_set():
                return
            self._open = True
        threading.Thread(target=self._probe, name="jobmeter-registry-probe", daemon=True).start()

    def close(self) -> None:
        """Stop checking."""
        self._closed.set()

    def _probe(self) -> None:
        unexpected = False
        while True:
            try:
                with patience(SHORT_SECONDS):
                    self._check()
            except exc.SQLAlchemyError as error:
                _log.debug("the registry's database does not answer: %s", error)
            except Exception:  # noqa: BLE001 - without this thread the breaker would stay open for ever
                if not unexpected:
                    _log.exception("whether the registry's database answers could not be checked; it is tried again")
                unexpected = True
            else:
                break
            if self._closed.wait(PROBE_SECONDS):
                return
        self._open = False
        _log.warning("the registry's database answers again")


def _is_lost(error: BaseException) -> bool:
    """Whether the connection is gone or could not be made; not where a server that answers refuses a statement."""
    if isinstance(error, exc.DBAPIError):
        refused = getattr(error.orig, "sqlstate", None)
        return error.connection_invalidated or (isinstance(error, exc.OperationalError) and refused is None)
    return False
