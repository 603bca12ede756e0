"""A circuit breaker for PostgreSQL: while the server does not answer, no caller waits for it.

A server that is stopped, frozen or cut off by the network accepts connections and answers nothing. So every statement
must be answered within a time limit. The first statement that is not, or a lost connection, opens the breaker: every
call then fails without waiting, and one thread checks every second whether the server answers again.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy import exc

from jobmeter.errors import UnavailableError

_log = logging.getLogger(__name__)
STATEMENT_SECONDS = 60.0
"""Time limit of a statement: longer than the wait for a lock."""
SHORT_SECONDS = 3.0
"""Time limit of a statement on the way of every request."""
OBSERVE_SECONDS = 10.0
"""Time limit of the report of samples, for which their senders wait."""
SLOW_SECONDS = 3_600.0
"""Time limit of a statement that may change a whole table."""
PROBE_SECONDS = 1.0
_timeout: ContextVar[float] = ContextVar("statement_timeout", default=STATEMENT_SECONDS)


def compute_timeout() -> float:
    """Return the time limit of a statement in this context, in seconds."""
    return _timeout.get()


@contextmanager
def limit_statements(seconds: float) -> Iterator[None]:
    """Set the time limit of each statement of the block."""
    token = _timeout.set(seconds)
    try:
        yield
    finally:
        _timeout.reset(token)


class Breaker:
    """Opens on lost connections and closes when the server answers. Thread safe.

    ``probe`` runs any query on a connection of its own.
    """

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
        """Open if the error means a lost connection."""
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
                with limit_statements(SHORT_SECONDS):
                    self._check()
            except exc.SQLAlchemyError as error:
                _log.debug("the registry's database does not answer: %s", error)
            except Exception:  # noqa: BLE001 - without this thread the breaker would stay open for ever
                if not unexpected:
                    _log.exception("the check of the registry's database failed; it is repeated")
                unexpected = True
            else:
                break
            if self._closed.wait(PROBE_SECONDS):
                return
        self._open = False
        _log.warning("the registry's database answers again")


def _is_lost(error: BaseException) -> bool:
    """Return True if the connection is lost or could not be made; False if a server refuses a statement."""
    if isinstance(error, exc.DBAPIError):
        refused = getattr(error.orig, "sqlstate", None)
        return error.connection_invalidated or (isinstance(error, exc.OperationalError) and refused is None)
    return False
