"""The connection to SQLite or PostgreSQL: its settings, its transactions, and its failures as our errors."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event, exc

from jobmeter.errors import ConfigurationError, ConflictError, UnavailableError
from jobmeter.registry.breaker import STATEMENT_SECONDS, Breaker, limit_statements
from jobmeter.registry.writers import WriterQueue

_log = logging.getLogger(__name__)
SQLITE = "sqlite"
POSTGRESQL = "postgresql"
BUSY_MS = 15_000
"""Time that a writer waits for another process to finish its transaction."""
CONNECTIONS = 8
_PRAGMAS = (
    "journal_mode = WAL",
    # An acknowledged transaction survives a power cut, which WAL with NORMAL does not promise.
    "synchronous = FULL",
    "foreign_keys = ON",
    "cache_size = -32768",
    # The log is checkpointed and truncated after 256 KiB; by default it stays at 4 MiB and more.
    "wal_autocheckpoint = 64",
    "journal_size_limit = 65536",
)
_WORDS = (
    ("disk is full", "the disk is full"),
    ("no space left", "the disk is full"),
    ("database is locked", "its database is locked"),
    ("lock timeout", "its database is locked"),
    ("not a database", "its file is not a database"),
    ("malformed", "its file is damaged"),
    ("read-only", "its database is read-only"),
    ("readonly", "its database is read-only"),
    ("unable to open", "its file cannot be opened"),
    ("disk i/o", "its disk fails"),
    ("too many", "its database has too many connections"),
    ("authentication failed", "its database refused the user or the password"),
    ("no answer within", "its database does not answer"),
    ("connection", "its database cannot be reached"),
)
_FAILURES = (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.TimeoutError, OSError)


class Database:
    """A pool of connections. Safe for several threads."""

    def __init__(self, url: str) -> None:
        """Open ``sqlite:///PATH`` or ``postgresql://user@host/name``.

        Raises ConfigurationError for any other URL, UnavailableError if the database does not answer.
        """
        self.url = _parse(url)
        self.kind = self.url.get_backend_name()
        self.writers = WriterQueue()
        with convert_failures():
            self.engine = _sqlite(self.url) if self.kind == SQLITE else _postgresql(self.url)
        self._breaker = None if self.kind == SQLITE else Breaker(self._check)
        self._writing = self.engine.execution_options(jobmeter_writes=True)

    @property
    def path(self) -> Path:
        """The file of a SQLite database."""
        return Path(self.url.database or "")

    @contextmanager
    def read(self, seconds: float = STATEMENT_SECONDS) -> Iterator[sa.Connection]:
        """Open a read transaction. PostgreSQL has ``seconds`` to answer each statement."""
        with convert_failures(), self._guard(seconds), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def open_snapshot(self, seconds: float = STATEMENT_SECONDS) -> Iterator[sa.Connection]:
        """Open a read transaction whose statements all see the same state. See ``read``."""
        with self.read(seconds) as connection:
            if self.kind == POSTGRESQL:
                connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            yield connection

    @contextmanager
    def write(self, seconds: float = STATEMENT_SECONDS, *, key: str = "") -> Iterator[sa.Connection]:
        """Open a transaction that is durable after the block, and rolled back if the block raises.

        SQLite has one writer at a time: threads of this process queue here rather than poll the file's lock. Different
        keys (the projects that are written to) take turns. ``seconds``: see ``read``.
        """
        queue = self.writers.turn(key) if self.kind == SQLITE else nullcontext()
        with queue, convert_failures(), self._guard(seconds), self._writing.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection."""
        if self._breaker is not None:
            self._breaker.close()
        self.engine.dispose()

    @contextmanager
    def _guard(self, seconds: float) -> Iterator[None]:
        """Run the block behind the breaker of PostgreSQL.

        Raises UnavailableError while the database does not answer.
        """
        if self._breaker is None:
            yield
            return
        self._breaker.check()
        try:
            with limit_statements(seconds):
                yield
        except exc.DBAPIError as error:
            self._breaker.note(error)
            raise

    def _check(self) -> None:
        with self.engine.connect() as connection:
            connection.execute(sa.select(1))


@contextmanager
def convert_failures() -> Iterator[None]:
    """Convert failures of the database or its disk to UnavailableError, and a duplicate to ConflictError."""
    try:
        yield
    except exc.IntegrityError as error:
        raise ConflictError("the registry already has this entry") from error
    except _FAILURES as error:
        raise _make_unavailable(error) from error
    except exc.DBAPIError as error:
        # A damaged SQLite file is a bare DatabaseError. Every other kind is a bug in Jobmeter.
        if type(error) is not exc.DatabaseError:
            raise
        raise _make_unavailable(error) from error


def _make_unavailable(error: BaseException) -> UnavailableError:
    """Return the error without files or addresses, for any client. The driver's message goes to the log."""
    reason = _reason(error)
    _log.warning("the registry does not work now: %s", reason)
    reason_text = next((words for mark, words in _WORDS if mark in reason.lower()), "see the server's log")
    return UnavailableError(f"the registry does not work now: {reason_text}")


def _reason(error: BaseException) -> str:
    # The driver's own first line: SQLAlchemy's text repeats the statement and its values.
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _parse(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except exc.ArgumentError as error:
        raise ConfigurationError("the registry's URL is invalid: use sqlite:///PATH or postgresql://...") from error
    backend = url.drivername.partition("+")[0]
    if backend in {"postgres", POSTGRESQL}:
        return url.set(drivername="postgresql+psycopg")
    if backend != SQLITE:
        raise ConfigurationError(f"the registry may be sqlite or postgresql, not {backend!r}")
    if not url.database or url.database == ":memory:":
        raise ConfigurationError("the registry's SQLite database needs a file: sqlite:////var/lib/jobmeter/registry.db")
    return url.set(drivername="sqlite+pysqlite")


def _postgresql(url: sa.URL) -> sa.Engine:
    from jobmeter.registry.postgresql import connect  # noqa: PLC0415 - its driver is a twentieth of a start

    arguments = {"connect_timeout": 5, "application_name": "jobmeter", **url.query}
    engine = sa.create_engine(
        url.set(query={}),
        connect_args={**arguments, "options": f"{arguments.get('options', '')} -c lock_timeout={BUSY_MS}".strip()},
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_pre_ping=True,
        pool_timeout=BUSY_MS / 1000,
    )
    event.listen(engine, "do_connect", connect)
    return engine


def _sqlite(url: sa.URL) -> sa.Engine:
    _make_file(Path(url.database or ""))
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False, "isolation_level": None},
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=BUSY_MS / 1000,
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _make_file(path: Path) -> None:
    # Only its owner may read it: it contains sealed secrets. SQLite gives its side files the same mode.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    # The driver's own transactions start late and cannot be upgraded under contention: a writer locks at its start.
    writes = connection.get_execution_options().get("jobmeter_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
