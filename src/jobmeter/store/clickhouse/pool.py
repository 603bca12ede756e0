"""A bounded pool of connections: a slow query does not block the others."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from jobmeter.errors import ConfigurationError, JobmeterError, UnavailableError
from jobmeter.store.clickhouse.failures import translate
from jobmeter.store.clickhouse.target import EngineTarget

logger = logging.getLogger(__name__)

# A user's profile may differ; acknowledged data must be on disk, in the order in which it was sent.
_SETTINGS: dict[str, Any] = {
    "async_insert": 0,
    "apply_mutations_on_fly": 1,
    "enable_alp_codec": 1,
    "max_insert_threads": 1,
    "optimize_on_insert": 1,
    "max_partitions_per_insert_block": 100,
    "do_not_merge_across_partitions_select_final": 1,
}
WRITE_SILENCE_SECONDS = 300
Opening = Callable[[str | None, int], Client]
_CLUSTER_SETTINGS: dict[str, Any] = {
    "distributed_foreground_insert": 1,
    "distributed_product_mode": "local",
    "parallel_distributed_insert_select": 2,
    "prefer_localhost_replica": 1,
}


class Pool:
    """At most ``size`` connections to one engine, opened on demand and cached until ``close``.

    Safe for any number of threads; one connection serves one of them at a time. ``check`` is called after each use. If
    it raises, the results of this use do not count.
    """

    def __init__(
        self,
        target: EngineTarget,
        size: int,
        wait_seconds: float = 30.0,
        silence_seconds: int = WRITE_SILENCE_SECONDS,
        opening: Opening | None = None,
    ) -> None:
        """``silence_seconds``: time without a byte from the server after which the connection counts as lost.

        ``opening`` opens a connection to a database with that time; by default to the first server of the target.
        """
        self._target = target
        self._silence_seconds = silence_seconds
        self._opening: Opening = opening or partial(connect, target)
        self.check: Callable[[], None] = accept_all
        self._slots = threading.BoundedSemaphore(size)
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._idle: list[Client] = []
        self._closed = False
        self._failed: Callable[[Exception], None] = _ignore_failure

    def watch(self, failed: Callable[[Exception], None]) -> None:
        """Register a function that is called with every failure of the engine, before it is translated."""
        self._failed = failed

    def add(self, client: Client) -> None:
        """Add an unused connection to the database."""
        self._give_back(client)

    @contextmanager
    def borrow_client(self) -> Iterator[Client]:
        """Yield a connection for the block. Raises UnavailableError if none becomes free in time."""
        if not self._slots.acquire(timeout=self._wait_seconds):
            raise UnavailableError("the telemetry engine is busy: every connection is in use")
        try:
            client = self._take()
            try:
                yield client
            except BaseException as error:
                if isinstance(error, ClickHouseError):
                    self._failed(error)
                if _is_sound_after(error):
                    self._give_back(client)
                else:
                    _discard(client)
                raise
            self._give_back(client)
        finally:
            self._slots.release()
        self.check()

    def close(self) -> None:
        """Close the idle connections now, the others when they are released."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()

    def _take(self) -> Client:
        with self._lock:
            if self._closed:
                raise UnavailableError("the telemetry store is closed")
            if self._idle:
                return self._idle.pop()
        return self._opening(self._target.database, self._silence_seconds)

    def connect(self) -> Client:
        """Open a connection without a database, which does not belong to the pool yet."""
        return self._opening(None, self._silence_seconds)

    def _give_back(self, client: Client) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(client)
                return
        client.close()


def _ignore_failure(error: Exception) -> None:
    """Ignore a failure: nothing watches the pool."""


def accept_all() -> None:
    """Accept every read and commit: no other server can use the engine yet."""


def _is_sound_after(error: BaseException) -> bool:
    """Return True if the connection is usable after an error: the engine's answer, one of ours, or an early end.

    An error of the engine has a number. An error without a number comes from the connection, or from its use.
    """
    return isinstance(error, JobmeterError | GeneratorExit) or getattr(error, "code", None) is not None


def _discard(client: Client) -> None:
    """Close a connection that may be broken; the next request opens a new one."""
    try:
        client.close()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is not used again
        logger.warning("a connection to the telemetry engine could not be closed: %s", error)


def connect(target: EngineTarget, database: str | None, silence_seconds: int = WRITE_SILENCE_SECONDS) -> Client:
    """Open a connection. ``silence_seconds`` as for ``Pool``; an embedded engine ignores it.

    Raises ConfigurationError if another process or another path is in the way, else UnavailableError.
    """
    options: dict[str, Any] = {name: _parse_option(value) for name, value in target.options.items()}
    settings = _SETTINGS | (_CLUSTER_SETTINGS if target.cluster else {})
    try:
        if target.path is not None:
            _load_engine()
            return clickhouse_connect.get_client(
                interface="chdb",
                path=str(target.path),
                database=database,
                settings=settings | {"local_filesystem_read_method": "pread"},
                # The folder of a backup is the caller's choice; the server authorises the request.
                chdb_options={"backups.allowed_path": "/", **target.options},
            )
        return clickhouse_connect.get_client(
            host=target.places[0][0],
            port=target.places[0][1],
            username=target.user or None,
            password=target.password,
            database=database,
            settings=settings,
            autogenerate_session_id=False,
            form_encode_query_params=True,
            connect_timeout=min(10, silence_seconds),
            send_receive_timeout=silence_seconds,
            **options,
        )
    except (ClickHouseError, OSError) as error:
        raise _refusal(error, target) from error


class _Absent:
    """Hides modules from one thread, as if they were not installed.

    It stays in ``sys.meta_path``: removing a finder while another thread iterates over that list would make that thread
    skip a finder.
    """

    def __init__(self) -> None:
        self._here = threading.local()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - a finder's form
        """Raise ModuleNotFoundError for a hidden module: see ``importlib.abc.MetaPathFinder``."""
        if name == getattr(self._here, "name", None):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    @contextmanager
    def hide(self, name: str) -> Iterator[None]:
        """Hide a module that is not loaded yet from this thread."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._here.name = name
        try:
            yield
        finally:
            del self._here.name


_absent = _Absent()


def _load_engine() -> None:
    """Load the embedded engine without Arrow, which it does not need: saves 15 MiB and a twentieth of a start.

    Other threads may load Arrow meanwhile.
    """
    if "chdb.state" not in sys.modules:
        with _absent.hide("pyarrow"):
            import_module("chdb.state")


def _parse_option(value: str) -> str | bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(value.lower(), value)


def _refusal(error: Exception, target: EngineTarget) -> Exception:
    text = str(error)
    if "already initialized with path" in text:
        return ConfigurationError(f"{target.name} cannot be opened: this process has another embedded store open")
    if "Cannot lock file" in text or "Another server instance" in text:
        return ConfigurationError(
            f"{target.name} is in use by another process: stop it, or give this one a data folder of its own"
        )
    if "Error initializing EmbeddedServer" in text:
        return ConfigurationError(
            f"{target.name} cannot be opened: the engine says why above. Where it speaks of suspiciously many broken "
            "parts, a disk lost more than the engine tolerates: restore a backup into another data folder"
        )
    logger.warning("%s cannot be opened", target.name)
    return translate(error, "be opened")
