"""The only file that names engines."""

from collections.abc import Callable
from functools import partial

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import Clock
from jobmeter.store.base import Store


def open_store(dsn: str, clock: Clock) -> Store:
    """The engine of a DSN, its schema brought up to this program.

    ``chdb://PATH`` is embedded, ``clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE[?cluster=NAME]`` a server,
    ``memory://`` forgets everything at its end. Raises ConfigurationError for anything else, UnavailableError when the
    engine cannot be opened.
    """
    return opener(dsn, clock)()


def opener(dsn: str, clock: Clock) -> Callable[[], Store]:
    """What opens the engine of a DSN; see ``open_store``. The engine's modules are loaded here, none of them there.

    So a thread may open it while another one loads modules: loading them in two threads can wait for each other.
    Raises ConfigurationError for a DSN that is none.
    """
    scheme = dsn.partition("://")[0]
    if scheme in {"chdb", "clickhousedb"}:
        return _clickhouse(dsn, clock)
    if scheme == "memory":
        return _memory()
    raise ConfigurationError(
        f"there is no store {scheme!r}: use chdb://PATH, clickhousedb://USER:PASSWORD@HOST:PORT/DATABASE or memory://"
    )


def is_shared(dsn: str) -> bool:
    """Whether other servers may use the same engine at the same time."""
    return dsn.partition("://")[0] == "clickhousedb"


def _clickhouse(dsn: str, clock: Clock) -> Callable[[], Store]:
    from jobmeter.store.clickhouse import ClickHouseStore, parse_dsn

    return partial(ClickHouseStore, parse_dsn(dsn), clock)


def _memory() -> Callable[[], Store]:
    from jobmeter.store.memory import MemoryStore

    return MemoryStore
