"""Serve HTTP on a socket (docs/decisions/0014-http-server.md)."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate

import uvloop

from jobmeter.model.time import SECOND, Clock
from jobmeter.server.address import make_tls_context
from jobmeter.server.http.connection import Application, Connection
from jobmeter.server.http.limits import Connections
from jobmeter.server.stopping import Stopping
from jobmeter.settings import Settings

_log = logging.getLogger("jobmeter.server")

BACKLOG = 1024
_ACCEPTED = 64
"""Connections that are accepted in one go, before other work continues."""
_SHARED_SECONDS = 0.001
"""Pause after a connection in which other processes that share the socket can accept the next one."""
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class HttpServer:
    """Server of an ASGI application on a bound socket.

    The event loop has its own thread, so that the main thread can always handle signals.
    """

    def __init__(
        self,
        application: Application,
        bound: socket.socket,
        connections: Connections,
        clock: Clock,
        *,
        is_shared: bool = False,
    ) -> None:
        """``is_shared``: other processes accept connections on the same socket, and each process should get some."""
        self._clock = clock
        self._application = application
        self._bound = bound
        self._connections = connections
        self._is_shared = is_shared
        self._date = b""
        self._context: ssl.SSLContext | None = None

    def serve(
        self, settings: Settings, stopping: Stopping, listening: Callable[[], None], finished: Callable[[], bool]
    ) -> None:
        """Serve until ``stopping`` has begun. ``finished`` is polled once a second and begins the stop.

        ``listening`` is called when requests are accepted. After the stop begins, no connection is accepted; running
        requests are answered as long as ``stopping`` leaves time. Raises ConfigurationError for an unusable
        certificate.
        """
        self._context = make_tls_context(settings)
        with ThreadPoolExecutor(1, "jobmeter-http") as aside:
            aside.submit(lambda: uvloop.run(self._serve(stopping, listening, finished))).result()

    async def _serve(self, stopping: Stopping, listening: Callable[[], None], finished: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        self._tick()
        self._bound.listen(BACKLOG)
        self._bound.setblocking(False)
        loop.add_reader(self._bound, self._accept)
        listening()
        stop_event = asyncio.Event()
        stopping.call_at_stop(lambda: loop.call_soon_threadsafe(stop_event.set))
        while not stop_event.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop_event.wait(), 1.0)
            self._tick()
            if finished():
                stopping.begin()
        loop.remove_reader(self._bound)
        self._bound.close()
        await self._drain(stopping)

    def _tick(self) -> None:
        self._date = formatdate(self._clock.now_ms() / SECOND, usegmt=True).encode()
        self._connections.sweep()

    async def _drain(self, stopping: Stopping) -> None:
        for one in self._connections:
            if isinstance(one, Connection):
                one.finish()
        while len(self._connections) and stopping.seconds_left:
            await asyncio.sleep(0.02)
            self._connections.sweep()
        for one in self._connections:
            one.cut()

    def _accept(self) -> None:
        for _ in range(1 if self._is_shared else _ACCEPTED):
            try:
                accepted, _address = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _FULL:
                    self._pause_accepting(error)
                    return
                continue  # the client is already gone
            self._take(accepted)
            if self._is_shared:
                self._pause(_SHARED_SECONDS)

    def _take(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection = Connection(self._application, self._connections, lambda: self._date)
        admitted = self._connections.admit(connection)
        if admitted is None:
            accepted.close()
            return
        connection.limited = not admitted
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.handshake = loop.create_task(self._connect(connection, accepted))

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._context)
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            self._connections.forget(connection)
            accepted.close()
        finally:
            connection.handshake = None

    def _pause_accepting(self, error: OSError) -> None:
        """Pause accepting: the process has no file descriptor left."""
        _log.error("connections cannot be accepted, retrying in a second: %s", error.strerror)
        self._pause(1.0)

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._bound.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._bound, self._accept)
