"""OpenTSDB's telnet protocol on a separate port: lines in, error lines out.

The protocol has no credentials. A connection writes with the key of the settings (``opentsdb_key``), or with the token
of a line ``auth TOKEN``; without either every data point is refused. There is no encryption: use the port on this
machine or in a trusted network only.

A connection is not read while its data points are being written. TCP thus throttles a sender that is too fast, and data
that arrives meanwhile shares the next commit.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jobmeter import __version__
from jobmeter.access.call import Call
from jobmeter.access.principal import Principal
from jobmeter.access.signatures import BEARER
from jobmeter.errors import (
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.batch import SampleBatch
from jobmeter.server.exchange import make_request_id
from jobmeter.server.http.limits import MOST_TELNET, Connections, Reason
from jobmeter.server.pipeline import AccessRule, Incoming, ServedRequest, choose_no_project, enter, finish
from jobmeter.server.services import Services
from jobmeter.wire.opentsdb.line import Command, LineReader, Wrong
from jobmeter.wire.opentsdb.point import Points

T = TypeVar("T")
_log = logging.getLogger("jobmeter.server")

READ_BYTES = 256 * 1024
_READ_FACTOR = 100
"""Memory of parsed lines relative to their text, if each line names a new series: 1,400 bytes for 14."""
_SERIES_BYTES = 1_300
"""Bytes of memory that a connection uses per series."""
UNREAD_BYTES = 64 * 1024
"""Bytes of unread answers; further answers are dropped. collectd never reads any."""
IDLE_SECONDS = 3_600.0
"""Longest silence in seconds of a connection with a key."""
STRANGER_SECONDS = 60.0
"""Longest time in seconds that a connection may lack a key, whatever it sends."""
PATIENCE_SECONDS = 30.0
"""Longest time in seconds that a batch waits for a store that is full or too busy."""
THREADS = 8
_BACKLOG = 128
API = "opentsdb"
_PUT = AccessRule("put", "ingest:write", (BEARER,))
_STATS = AccessRule("stats", "server:read", (BEARER,))
_HELP = "available commands: auth exit help put stats version\n"
_WHEN = {"future": "future", "expired": "past"}
_STRANGER = "put: not authorized: send `auth TOKEN' first\n"


class TelnetServer(threading.Thread):
    """Thread that serves a bound socket until ``stop``, with its own event loop."""

    def __init__(self, services: Services, bound: socket.socket, most: int = MOST_TELNET) -> None:
        super().__init__(name="jobmeter-telnet", daemon=True)
        self._services = services
        self._bound = bound
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="jobmeter-telnet")
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self.connections = services.telemetry.make_connections("telnet", most)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> tuple[str, int]:
        """Address of the socket."""
        host, port = self._bound.getsockname()[:2]
        return host, port

    def start(self) -> None:
        """Listen, and begin to serve."""
        self._bound.listen(_BACKLOG)
        self._bound.setblocking(False)
        super().start()

    def run(self) -> None:
        """Run the event loop."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Stop reading; write the data that was read."""
        if self.is_alive():
            self._ready.wait()
            if self._loop is not None and self._stopping is not None:
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._stopping.set)
            self.join()
        self._pool.shutdown()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accepted, sock=self._bound, limit=READ_BYTES)
        self._ready.set()
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
            self.connections.sweep()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        client = str((writer.get_extra_info("peername") or ("",))[0])
        connection = _Connection(self._services, self._pool, writer, client, self.connections)
        if task is None or not self.connections.admit(connection):
            writer.write(b"error: too many connections\n")
            writer.close()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await connection.serve(reader)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        except Exception:  # noqa: BLE001 - a bug in one connection must not end the others
            _log.exception("a telnet connection failed")
        finally:
            self.connections.forget(connection)
            connection.cut()


class _Connection:
    """Connection of one sender."""

    def __init__(
        self,
        services: Services,
        pool: ThreadPoolExecutor,
        writer: asyncio.StreamWriter,
        client: str,
        connections: Connections,
    ) -> None:
        self._services = services
        self._pool = pool
        self._writer = writer
        self._client = client
        self._id = make_request_id()
        self._token = services.settings.opentsdb_key
        self._principal: Principal | None = None
        self._reader = LineReader()
        self._memory = services.memory.open_account()
        self._cached = 0
        # At least eight senders find memory for their data.
        self._read_bytes = max(1, min(READ_BYTES, services.memory.size // (8 * _READ_FACTOR)))
        self._open = True
        self._connections = connections
        self._deadline = connections.clock() + STRANGER_SECONDS

    @property
    def keyed(self) -> bool:
        """True once the sender has a valid key."""
        return self._principal is not None

    def find_overdue_reason(self, now: float) -> Reason | None:
        """Return the reason to close the connection now; None if it may stay."""
        return Reason.IDLE if now >= self._deadline else None

    def cut(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    def _wait(self) -> None:
        """Mark the connection as waiting for its sender."""
        if self.keyed:
            self._deadline = self._connections.clock() + IDLE_SECONDS
        self._connections.mark_waiting(self)

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Read until the end, ``exit``, or too long a silence."""
        try:
            if self._token:
                await self._enter(self._token)
            while self._open:
                self._wait()
                data = await reader.read(self._read_bytes)
                if not data:
                    break
                self._connections.mark_working(self)
                self._services.telemetry.note_activity()
                await self._take_within_memory(data)
            await self._drain()
        finally:
            self._memory.close()

    async def _take_within_memory(self, data: bytes) -> None:
        """Parse these lines once memory for their data points is free; disconnect the sender after too long a wait.

        Meanwhile nothing further is read, so that TCP throttles the sender.
        """
        reads = self._principal is not None or b"auth" in data
        size = _READ_FACTOR * len(data) if reads else 0

        async def reserve() -> bool:
            self._memory.take(size)
            return True

        if not await self._repeat_until_admitted(data.count(b"\n"), reserve):
            return
        try:
            await self._take(data)
        finally:
            self._memory.give_back(size)
            self._account_for_cache()

    def _account_for_cache(self) -> None:
        """Reserve memory for the connection's cache of series; without memory the cache is dropped."""
        points = self._reader.points
        size = 0 if points is None else points.cached * _SERIES_BYTES
        try:
            self._memory.take(max(0, size - self._cached))
        except (ThrottledError, LimitExceededError):
            if points is not None:
                points.clear_cache()
            size = 0
        self._memory.give_back(max(0, self._cached - size))
        self._cached = size

    async def _take(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            if isinstance(event, Wrong):
                self._refuse(event.reason, 1, event.line)
            else:
                await self._flush()
                await self._obey(event)
                if not self._open:
                    break
        await self._flush()

    async def _flush(self) -> None:
        """Write the gathered data points and return when they are durable."""
        reader = self._reader
        if reader.unread:
            self._refuse("unauthorized", reader.unread, _STRANGER)
            reader.unread = 0
        # Data that a closing connection has sent is still written.
        if reader.points is not None and len(reader.points):
            await asyncio.shield(self._write(reader.points.take()))

    async def _write(self, batch: SampleBatch) -> None:
        loop = asyncio.get_running_loop()
        try:
            receipt = await self._repeat_until_admitted(
                len(batch), lambda: loop.run_in_executor(self._pool, self._commit, batch)
            )
        except (UnauthenticatedError, ForbiddenError) as error:
            self._leave()
            self._refuse("unauthorized", len(batch), f"put: not authorized: {error.message}\n")
        except InvalidRequestError as error:
            self._refuse("refused", len(batch), f"put: illegal argument: {error.message}\n")
        else:
            if receipt is not None:
                self._services.telemetry.count_ingested(receipt)
                for reason, count in receipt.rejected.items():
                    self._say(f"put: illegal argument: {count} data points are too far in the {_WHEN[reason]}\n")

    async def _repeat_until_admitted(self, lines: int, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """Repeat the attempt while the server has no room. None if the sender was disconnected."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await attempt()
            except (ThrottledError, UnavailableError) as error:
                if loop.time() >= latest:
                    self._refuse("unavailable", lines, f"put: storage error: {error.message}\n")
                    self._open = False
                    return None
                await asyncio.sleep(min(error.retry_after_ms or 1_000, 5_000) / 1000)

    def _commit(self, batch: SampleBatch) -> Receipt:
        """Store a batch, on a thread. Looks the key up each time, so that a revoked key stops immediately."""
        request = self._request(self._token)
        try:
            enter(self._services, request, choose_no_project)
            receipt = self._services.pipeline.submit_samples(batch, request.principal)
            request.source.status = 200
        except JobmeterError as error:
            request.error = error
            raise
        else:
            return receipt
        finally:
            finish(self._services.usage, request)

    def _refuse(self, reason: str, count: int, text: str) -> None:
        self._services.telemetry.count_ingested(Receipt(rejected={reason: count}))
        self._say(text)

    async def _obey(self, command: Command) -> None:
        match command.name:
            case "auth":
                await self._enter(command.arguments[0] if command.arguments else "")
                # One wrong token closes the connection, so that nobody can try many.
                self._open = self._principal is not None
            case "version":
                self._say(f"Jobmeter {__version__}, as OpenTSDB 2.4\n")
            case "help":
                self._say(_HELP)
            case "stats":
                await self._stats()
            case "exit":
                self._open = False
            case _:
                self._say(f"unknown command: {command.name[:80]}.  Try `help'.\n")

    async def _enter(self, token: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            principal = await loop.run_in_executor(self._pool, self._authenticate, token)
        except JobmeterError as error:
            self._leave()
            self._say(f"auth: {error.message}\n")
            return
        self._token, self._principal = token, principal
        self._reader.points = Points(principal.project)

    def _leave(self) -> None:
        """Forget the key: further data points are refused unread."""
        self._principal, self._reader.points = None, None

    def _authenticate(self, token: str, rule: AccessRule = _PUT) -> Principal:
        request = self._request(token, rule)
        enter(self._services, request, choose_no_project)
        return request.principal

    def _request(self, token: str, rule: AccessRule = _PUT) -> ServedRequest:
        call = Call("PUT", "/telnet", "", (("authorization", f"Bearer {token}"),), client=self._client)
        return ServedRequest(Incoming(call, self._id), API, rule)

    async def _stats(self) -> None:
        if self._principal is None:
            self._say("stats: not authorized\n")
            return
        loop = asyncio.get_running_loop()
        try:
            # The key is looked up each time, so that a revoked one stops immediately.
            await loop.run_in_executor(self._pool, self._authenticate, self._token, _STATS)
        except JobmeterError as error:
            if isinstance(error, UnauthenticatedError):
                self._leave()
            self._say(f"stats: {error.message}\n")
            return
        seconds = self._services.clock.now_ms() // 1000
        for name, tags, count in self._services.telemetry.list_figures():
            pairs = "".join(f" {key}={value}" for key, value in tags if value)
            self._say(f"{name} {seconds} {count}{pairs or ' host=jobmeter'}\n")

    def _say(self, text: str) -> None:
        """Send an answer, unless the sender does not read."""
        if self._writer.transport.get_write_buffer_size() <= UNREAD_BYTES:
            self._writer.write(text.encode())

    async def _drain(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.drain()
