"""The socket and the HTTP server on it (docs/decisions/0014-http-server.md)."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path

import uvloop

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import SECOND, Clock
from jobmeter.server.http.connection import Application, Connection
from jobmeter.server.http.limits import Connections
from jobmeter.server.stopping import Stopping
from jobmeter.settings import Settings

_log = logging.getLogger("jobmeter.server")

BACKLOG = 1024
_ACCEPTED = 64
"""Connections that are accepted in one go, before others get their turn."""
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. Raises ConfigurationError when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigurationError(f"--host {host!r} is not an address of this machine: {error}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        # Never SO_REUSEPORT: a second server on the same port has to fail, not to share its requests.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return bound


def url_of(bound: socket.socket, settings: Settings) -> str:
    """Where a client on this machine reaches the server."""
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - every address includes the local one
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class HttpServer:
    """Serves an ASGI application on a bound socket until it is stopped.

    The event loop has a thread of its own, so that the main thread is free for signals whatever the loop does.
    """

    def __init__(self, application: Application, bound: socket.socket, connections: Connections, clock: Clock) -> None:
        self._clock = clock
        self._application = application
        self._bound = bound
        self._connections = connections
        self._date = b""
        self._context: ssl.SSLContext | None = None

    def serve(
        self, settings: Settings, stopping: Stopping, listening: Callable[[], None], finished: Callable[[], bool]
    ) -> None:
        """Serve until ``stopping`` has begun; ``finished``, polled once a second, begins it.

        ``listening`` is called when requests are taken. Then no connection is accepted any more, and requests under
        way are answered, as long as ``stopping`` leaves time. Raises ConfigurationError for a certificate that cannot
        be used.
        """
        self._context = tls_context(settings)
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
        stopping.then(lambda: loop.call_soon_threadsafe(stop_event.set))
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
        while len(self._connections) and stopping.seconds_left():
            await asyncio.sleep(0.02)
            self._connections.sweep()
        for one in self._connections:
            one.cut()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                accepted, _address = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _FULL:
                    self._rest(error)
                    return
                continue  # the client is gone already
            self._take(accepted)

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

    def _rest(self, error: OSError) -> None:
        """Pause accepting: the process has no file descriptor left."""
        _log.error("no connection can be accepted: %s", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        loop.call_later(1.0, self._resume)

    def _resume(self) -> None:
        if self._bound.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._bound, self._accept)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What TLS 1.2 and 1.3 are spoken with; None without a certificate. Raises ConfigurationError."""
    certificate, key = tls_files(settings)
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def tls_files(settings: Settings) -> tuple[Path | None, Path | None]:
    """The certificate and its key, checked; (None, None) without TLS. Raises ConfigurationError."""
    if not settings.tls_cert and not settings.tls_key:
        return None, None
    if not (settings.tls_cert and settings.tls_key):
        raise ConfigurationError("--tls-cert and --tls-key belong together: give both or none")
    certificate, key = Path(settings.tls_cert), Path(settings.tls_key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot use {certificate} with {key}: {error}") from error
    return certificate, key
