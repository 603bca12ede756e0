"""Several ClickHouse servers behind one connection: a statement goes to a server that answers."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, cast

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httputil import get_pool_manager
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.store.clickhouse.pool import WRITE_SILENCE_SECONDS, connect
from jobmeter.store.clickhouse.target import EngineTarget, Place, format_place, is_true
from jobmeter.store.clickhouse.write_fence import WriteFence

_log = logging.getLogger(__name__)
PING_SECONDS = 1.0
"""Seconds between two checks of a server."""
_PING_SILENCE_SECONDS = 5
SILENCE_SECONDS = 15
"""Seconds without a byte after which a server counts as frozen. The HTTP client asks for a sign of life every 10 s."""
LOST = (ClickHouseError, OSError, JobmeterError)
"""Errors of a statement."""
_TYPES = "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}"


class Nodes:
    """Servers of a target; every server accepts every statement. Thread-safe.

    One thread for each server checks whether the server answers.
    """

    no_answer: frozenset[int | None] = frozenset({None})
    """Numbers of the errors after which another server may answer. An error without a number is of the connection."""

    def __init__(self, target: EngineTarget) -> None:
        self.target = target
        self._guard = threading.Lock()  # guards the next attribute
        self._down: frozenset[Place] = frozenset()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def fence(self) -> WriteFence | None:
        """The fence of inserts and deletions; None where no other server can expel this one."""
        return None

    def start(self) -> None:
        """Start the threads."""
        for place in self.target.places:
            self._begin(f"jobmeter-node-{format_place(place)}", partial(self._watch, place))

    def stop(self) -> None:
        """End the threads, after the checks that run."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def open(self, database: str | None, silence_seconds: int) -> Client:
        """Return a connection to all servers. It connects to each at the first statement for that server."""
        return cast("Client", NodesClient(self, database, min(silence_seconds, SILENCE_SECONDS)))

    def read(self, client: "NodesClient", call: Callable[[Client], Any]) -> Any:  # noqa: ANN401 - any answer
        """Return the answer of the first server that gives one. Raises the error of the last server."""
        failure: Exception = UnavailableError(f"no server of {self.target.name} has all data")
        tried: set[Place] = set()
        # Another server may stop being readable during the wait for one.
        while (place := next((one for one in self.list_readable() if one not in tried), None)) is not None:
            tried.add(place)
            try:
                return call(client.connect_to(place))
            except LOST as error:
                if not self.lacks_answer(error):
                    raise
                client.drop(place)
                self.lose(place, error)
                failure = error
        raise failure

    def write(self, client: "NodesClient", sql: str, call: Callable[[Client], Any]) -> Any:  # noqa: ANN401, ARG002 - as read
        """Run a statement that changes data. It may run again: a row replaces an equal row."""
        return self.read(client, call)

    def list_readable(self) -> Sequence[Place]:
        """Return the servers for a question, the best one first."""
        return self.order_by_answer(self.target.places)

    def order_by_answer(self, places: Sequence[Place]) -> Sequence[Place]:
        """Return servers in the given order, those that do not answer last."""
        return sorted(places, key=self._down.__contains__)

    def lacks_answer(self, error: Exception) -> bool:
        """Return True if another server may answer a statement that failed."""
        return getattr(error, "code", None) in self.no_answer

    def is_up(self, place: Place) -> bool:
        """Return True if a server answered last time."""
        return place not in self._down

    def lose(self, place: Place, error: Exception) -> None:
        """Note that a server does not answer."""
        with self._guard:
            fresh = place not in self._down
            self._down |= {place}
        if fresh:
            _log.warning("%s does not answer: %s", format_place(place), error)

    def greet(self, place: Place, client: Client) -> None:
        """Handle that a server answers again. No question goes to it before, while another one answers."""

    def check(self, place: Place, client: Client) -> None:  # noqa: ARG002 - for descendants
        """Ask a server for a sign of life."""
        client.query("SELECT 1")

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _watch(self, place: Place) -> None:
        client: Client | None = None
        probes = _probing(self.target)
        while not self._over.wait(PING_SECONDS):
            try:
                if client is None:
                    _probe(probes, self.target.with_server(place))
                    client = connect(self.target.with_server(place), None, _PING_SILENCE_SECONDS)
                    self.greet(place, client)
                self.check(place, client)
            except (*LOST, HTTPError) as error:
                self.lose(place, error)
                _close(client)
                client = None
            except Exception:  # noqa: BLE001 - without this thread the server would never be used again
                _log.exception("%s cannot be checked", format_place(place))
            else:
                self.note_answer(place)
        _close(client)

    def note_answer(self, place: Place) -> None:
        """Note that a server answers."""
        with self._guard:
            fresh = place in self._down
            self._down -= {place}
        if fresh:
            _log.info("%s answers again", format_place(place))


class NodesClient:
    """Connection to several servers with the methods of ``Client`` that the store uses. One thread at a time."""

    def __init__(self, nodes: Nodes, database: str | None, silence_seconds: int) -> None:
        self.database = database
        self._nodes = nodes
        self._silence_seconds = silence_seconds
        self._clients: dict[Place, Client] = {}
        self._types: dict[str, dict[str, str]] = {}

    def connect_to(self, place: Place) -> Client:
        """Return the connection to one server. Raises UnavailableError if it cannot be reached."""
        if place not in self._clients:
            self._clients[place] = connect(self._nodes.target.with_server(place), self.database, self._silence_seconds)
        client = self._clients[place]
        client.database = self.database
        return client

    def drop(self, place: Place) -> None:
        """Close the connection to one server."""
        _close(self._clients.pop(place, None))

    def close(self) -> None:
        """Close all connections."""
        for place in list(self._clients):
            self.drop(place)

    def query(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as of Client
        """Read rows from a server."""
        return self._nodes.read(self, lambda client: client.query(*arguments, **options))

    def query_column_block_stream(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as of Client
        """Begin to read blocks from a server."""
        return self._nodes.read(self, lambda client: client.query_column_block_stream(*arguments, **options))

    def command(self, sql: str, **options: Any) -> Any:  # noqa: ANN401 - as of Client
        """Run a statement. A backup may take long without a sign of life."""
        fence = self._nodes.fence
        if fence is not None and (restricted := fence.restrict(sql)) != sql:
            sql, options = restricted, options | {"settings": fence.settings | options.get("settings", {})}
        if not sql.startswith(("BACKUP", "RESTORE")):
            return self._nodes.write(self, sql, lambda client: client.command(sql, **options))
        with closing(NodesClient(self._nodes, self.database, WRITE_SILENCE_SECONDS)) as patient:
            return self._nodes.write(patient, sql, lambda client: client.command(sql, **options))

    def raw_insert(
        self,
        table: str,
        column_names: Sequence[str] | None = None,
        insert_block: bytes = b"",
        settings: Mapping[str, Any] | None = None,
        fmt: str | None = None,
    ) -> Any:  # noqa: ANN401 - as of Client
        """Insert rows. The body must be bytes, because it may be sent several times."""
        fence, given = self._nodes.fence, dict(settings or {})
        if fence is not None:
            types = self._read_types(table)
            table = fence.find_target(table, {name: types[name] for name in column_names or types})
            column_names, given = None, given | fence.settings
        return self._nodes.write(
            self,
            f"INSERT INTO {table}",
            lambda client: client.raw_insert(table, column_names, insert_block, given, fmt),
        )

    def _read_types(self, table: str) -> Mapping[str, str]:
        """Return the types of a table's columns."""
        if table not in self._types:
            self._types[table] = dict(self.query(_TYPES, parameters={"table": table}).result_rows)
        return self._types[table]


def _probe(probes: PoolManager, target: EngineTarget) -> None:
    """Raise an error unless a server answers. A failure leaves nothing in the log, unlike a failure to connect."""
    scheme = "https" if target.is_secure else "http"
    url = f"{scheme}://{format_place(target.places[0])}/ping"
    probes.request("GET", url, retries=False, timeout=_PING_SILENCE_SECONDS)


def _probing(target: EngineTarget) -> PoolManager:
    """Return HTTP connections with the TLS options of a target."""
    options: dict[str, Any] = {"verify": is_true(target.options.get("verify", "true"))}
    options |= {
        name: target.options[name] for name in ("ca_cert", "client_cert", "client_cert_key") if name in target.options
    }
    if name := target.options.get("server_host_name"):
        options |= {"server_hostname": name} | ({"assert_hostname": name} if options["verify"] else {})
    return cast("PoolManager", get_pool_manager(**options))


def _close(client: Client | None) -> None:
    """Close a connection that may be broken."""
    if client is not None:
        with suppress(Exception):
            client.close()
