"""Serve from a locked data folder until the last answer."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobmeter.access.keys import create_key
from jobmeter.access.principal import Role
from jobmeter.model.time import Clock
from jobmeter.server.address import bind, find_tls_files, make_url
from jobmeter.server.app import Application, build
from jobmeter.server.folder import ADMIN_KEY, write_note, write_private
from jobmeter.server.http.limits import MOST_GRPC, MOST_HTTP, MOST_TELNET, RESERVED, compute_share
from jobmeter.server.listen import HttpServer
from jobmeter.server.memory import freeze_objects
from jobmeter.server.missing import Recreate
from jobmeter.server.opening import Opening
from jobmeter.server.services import Services
from jobmeter.server.stopping import Stopping
from jobmeter.server.telnet import TelnetServer
from jobmeter.server.workers.frames import Setup
from jobmeter.server.workers.owner import OwnedRecords
from jobmeter.server.workers.pool import WorkerPool
from jobmeter.server.workers.process import WorkerProcess
from jobmeter.settings import Settings
from jobmeter.wire.native.series_lists import DIGEST_KEY

if TYPE_CHECKING:
    from jobmeter.server.otlp_grpc import GrpcServer

_log = logging.getLogger("jobmeter.server")


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments and resources of one start."""

    settings: Settings
    clock: Clock
    stopping: Stopping
    bound: socket.socket
    """Socket to listen on."""
    workers: Sequence[WorkerProcess]
    """Worker processes; none if the server is one process."""
    opening: Opening
    descriptors: int
    """Limit of open files of the process."""
    recreate: Recreate
    with_link: bool
    """True to announce a one-time sign-in link for the page."""
    idle_exit: int
    """Seconds without a request after which the server stops; 0 for never."""


def serve(start: Start, announce: Callable[[str], None]) -> None:
    """Serve from a locked folder; see ``jobmeter.server.run.run``."""
    settings, clock, descriptors = start.settings, start.clock, start.descriptors
    stopping, bound = start.stopping, start.bound
    with ExitStack() as stack:
        lines = None if settings.opentsdb_port is None else bind(settings.host, settings.opentsdb_port)
        if lines is not None:
            stack.enter_context(lines)
        grpc = _grpc(settings, compute_share(descriptors, MOST_GRPC))
        if grpc is not None:
            stack.callback(grpc.stop)
        pool = _workers(start, stack)
        application = build(settings, clock, start.recreate, start.opening)
        stack.callback(application.close)
        services = application.services
        stopping.under_way = services.telemetry.describe_running
        key = _admin_key(services)
        url = make_url(bound, settings)

        def listening() -> None:
            application.start()
            # Live streams do not end on their own.
            stopping.call_at_stop(partial(asyncio.get_running_loop().call_soon_threadsafe, services.hub.close))
            telnet = None if lines is None else _telnet(services, lines, stack, compute_share(descriptors, MOST_TELNET))
            if grpc is not None:
                grpc.start(services)
                # Before the application closes, because this needs it.
                stack.callback(lambda: grpc.stop(stopping.seconds_left))
            # A reader of the note may use every port, so all of them must listen by now.
            telnet_port = None if telnet is None else telnet.address[1]
            grpc_port = None if grpc is None else grpc.port
            stack.enter_context(
                write_note(settings.data, url, clock, opentsdb_port=telnet_port, otlp_grpc_port=grpc_port)
            )
            announce(f"Jobmeter listens at {url} (administrator's key: {key})")
            if start.with_link:
                page = (services.public_url or url) + _make_sign_in_path(services, key)
                announce(f"The page, signed in (once, within 15 minutes): {page}")
            if telnet is not None:
                announce(_describe(telnet, settings))
            if grpc is not None:
                announce(f"OTLP over gRPC is at {settings.host} port {grpc.port}")
            freeze_objects()

        def finished() -> bool:
            return 0 < start.idle_exit <= services.telemetry.idle_seconds

        _serve_http(start, application, pool, listening, finished)
        _log.info("stopping")


def _workers(start: Start, stack: ExitStack) -> WorkerPool | None:
    """Return the pool of the worker processes, which end with the stack; None if the server is one process."""
    if not start.workers:
        return None
    # HTTP connections take descriptors of the workers only.
    setup = Setup(start.settings, compute_share(start.descriptors, MOST_HTTP, len(start.workers)), DIGEST_KEY)
    pool = WorkerPool(start.bound, setup, start.workers)
    stack.callback(pool.close)
    return pool


def _serve_http(
    start: Start,
    application: Application,
    pool: WorkerPool | None,
    listening: Callable[[], None],
    finished: Callable[[], bool],
) -> None:
    telemetry, stopping = application.services.telemetry, start.stopping
    if pool is not None:
        telemetry.count_workers(pool)
        records = OwnedRecords(application.services)
        pool.serve(application.edge, stopping, listening, finished, partial(telemetry.count_closed, "http"), records)
        return
    connections = telemetry.make_connections("http", compute_share(start.descriptors, MOST_HTTP), RESERVED)
    server = HttpServer(application.edge, start.bound, connections, start.clock)
    server.serve(start.settings, stopping, listening, finished)


def _admin_key(services: Services) -> Path:
    """Return the file with the administrator's key; create file and key if missing."""
    path = services.settings.data / ADMIN_KEY
    if not path.exists():
        made = create_key(services.registry, services.vault, services.clock, "admin", Role.ADMIN)
        write_private(path, msgspec.json.encode(made) + b"\n")
    return path


class _AdminKey(msgspec.Struct):
    access_key_id: str


def _make_sign_in_path(services: Services, key: Path) -> str:
    """Return the page path that signs in with the administrator's key."""
    holder = msgspec.json.decode(key.read_bytes(), type=_AdminKey)
    return f"/#/open?code={services.sessions.create_link(holder.access_key_id)[0]}"


def _telnet(services: Services, bound: socket.socket, stack: ExitStack, most: int) -> TelnetServer:
    """Start OpenTSDB's telnet protocol; it ends with the stack."""
    server = TelnetServer(services, bound, most)
    server.start()
    stack.callback(server.stop)
    return server


def _describe(telnet: TelnetServer, settings: Settings) -> str:
    """Return the line that announces the telnet protocol."""
    host, port = telnet.address
    keyless = "" if settings.opentsdb_key else "; each connection must begin with auth TOKEN"
    return f"OpenTSDB's telnet protocol is at {host} port {port}{keyless}"


def _grpc(settings: Settings, most: int) -> "GrpcServer | None":
    """Start OTLP over gRPC on its port; None if it is not configured."""
    if settings.otlp_grpc_port is None:
        return None
    from jobmeter.server.otlp_grpc import GrpcServer  # noqa: PLC0415 - takes time and memory that few need

    return GrpcServer(settings.host, settings.otlp_grpc_port, *find_tls_files(settings), most=most)
