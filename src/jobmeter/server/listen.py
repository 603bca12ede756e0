"""The socket and the HTTP server on it: Granian, embedded in this process (docs/decisions/0004-granian-embedded.md)."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import uvloop
from granian._granian import SocketHolder
from granian.constants import Interfaces, SSLProtocols
from granian.server.embed import Server as Embedded

from jobmeter.errors import ConfigurationError
from jobmeter.server.exchange import AsgiScope, Receive, Send
from jobmeter.settings import Settings

BACKLOG = 1024
CONNECTIONS = 16_384
"""Most connections at one time, idle ones included; more wait to be accepted."""
DRAIN_SECONDS = 30
"""Longest time that requests under way are given when the server stops."""


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


def allow_connections() -> None:
    """Let the process have a file descriptor for each connection, as far as the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def url_of(bound: socket.socket, settings: Settings) -> str:
    """Where a client on this machine reaches the server."""
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - every address includes the local one
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class HttpServer:
    """Serves an ASGI application on a bound socket until it is told to stop."""

    def __init__(self, application: Callable[[AsgiScope, Receive, Send], object], bound: socket.socket) -> None:
        self._application = application
        self._bound = bound
        self._under_way = 0
        self._stop: Callable[[], None] = lambda: None

    def serve(
        self,
        settings: Settings,
        listening: Callable[[], None],
        finished: Callable[[], bool],
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until SIGTERM or SIGINT, or until ``finished`` (asked once a second) says so.

        ``listening`` is called when requests are taken, ``stopping`` to end what would go on for ever. Then no
        connection is accepted any more, and requests under way are answered. Raises ConfigurationError for a
        certificate that cannot be used.
        """
        certificate, key = tls_files(settings)
        uvloop.run(self._serve(certificate, key, listening, finished, stopping))

    def stop(self) -> None:
        """Begin to stop; from the event loop's thread."""
        self._stop()

    async def _serve(
        self,
        certificate: Path | None,
        key: Path | None,
        listening: Callable[[], None],
        finished: Callable[[], bool],
        stopping: Callable[[], None],
    ) -> None:
        self._bound.listen(BACKLOG)
        self._bound.setblocking(False)
        server = _OnSocket(
            self._counted,
            interface=Interfaces.ASGINL,
            websockets=False,
            backlog=BACKLOG,
            backpressure=CONNECTIONS,
            log_enabled=False,
            ssl_cert=certificate,
            ssl_key=key,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        server.bound = self._bound
        loop = asyncio.get_running_loop()

        def stop() -> None:
            stopping()
            server.stop()  # type: ignore[no-untyped-call]

        self._stop = stop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        watch = loop.create_task(self._watch(listening, finished))
        await server.serve()
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        await self._drain()

    async def _watch(self, listening: Callable[[], None], finished: Callable[[], bool]) -> None:
        listening()
        while not finished():  # noqa: ASYNC110 - idleness is the absence of events
            await asyncio.sleep(1.0)
        self._stop()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + DRAIN_SECONDS
        while self._under_way and loop.time() < latest:  # noqa: ASYNC110 - at most twice in a life, and bounded
            await asyncio.sleep(0.02)

    async def _counted(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self._under_way += 1
        try:
            await self._application(scope, receive, send)  # type: ignore[misc]
        finally:
            self._under_way -= 1


class _OnSocket(Embedded):
    """Granian on ``bound``, a socket that listens already: the real port is known, and the port is not shared."""

    bound: socket.socket

    def _init_shared_socket(self) -> None:
        # Granian's type stub lags behind: the constructor takes (file descriptor, is it a unix socket, backlog).
        # It closes the descriptor at its end, so it gets one of its own.
        self._shd = SocketHolder(os.dup(self.bound.fileno()), False, BACKLOG)  # type: ignore[call-arg, assignment]


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
