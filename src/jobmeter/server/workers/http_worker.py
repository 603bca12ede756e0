"""Worker process: accepts connections, and forwards their requests to the storage process."""

import asyncio
import logging
import os
import socket
import time

from jobmeter.model.time import SystemClock
from jobmeter.server import LOG_FORMAT
from jobmeter.server.http.limits import RESERVED, Connections, allow_descriptors
from jobmeter.server.listen import HttpServer
from jobmeter.server.memory import freeze_objects, unmap_files
from jobmeter.server.stopping import Stopping
from jobmeter.server.workers.answers import WorkerAnswers
from jobmeter.server.workers.forward import Forwarder
from jobmeter.server.workers.frames import (
    READ_BY_WORKER,
    AdmissionResult,
    Closed,
    Figures,
    LookupResult,
    Ready,
    SamplesStored,
    Setup,
    Stop,
    ToWorker,
)
from jobmeter.store.channel import LENGTH_BYTES, Channel


class HttpWorker:
    """Worker process, which ends with the storage process."""

    def __init__(self, connection: socket.socket, bound: socket.socket) -> None:
        self._connection = connection
        self._bound = bound
        self._setup, window = _read_setup(connection)
        self._channel = Channel(READ_BY_WORKER, self._take, _leave)
        self._answers = None if window is None else WorkerAnswers.open(self._setup, window, self._channel)
        self._forwarder = Forwarder(self._channel) if self._answers is None else Forwarder(self._channel, self._answers)
        self._connections = Connections("http", self._setup.bound, self._report_closed, time.monotonic, RESERVED)
        self._stopping = Stopping(self._setup.settings.grace_seconds, self._forwarder.describe_running)
        self._attaching: asyncio.Task[object] | None = None

    def run(self) -> None:
        """Serve until the storage process sends ``Stop``."""
        with self._stopping:
            server = HttpServer(self._forwarder, self._bound, self._connections, SystemClock(), is_shared=True)
            server.serve(self._setup.settings, self._stopping, self._begin_attaching, self._report_figures)
        if self._answers is not None:
            self._answers.close()

    def _begin_attaching(self) -> None:
        self._attaching = asyncio.get_running_loop().create_task(self._attach())
        freeze_objects()
        unmap_files()

    async def _attach(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=self._connection)
        if self._answers is not None:
            self._answers.begin()
        self._channel.send(Ready())

    def _report_figures(self) -> bool:
        self._channel.send(Figures(len(self._connections)))
        return False

    def _report_closed(self, _: str, reason: str) -> None:
        self._channel.send(Closed(reason))

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Stop):
            if self._answers is not None:
                self._answers.stop()
            self._stopping.begin()
        elif isinstance(message, LookupResult | AdmissionResult | SamplesStored):
            if self._answers is not None:
                self._answers.take(message)
        elif not isinstance(message, Setup):
            self._forwarder.take(message)


def _read_setup(connection: socket.socket) -> tuple[Setup, int | None]:
    """Return the first message, and the window's file descriptor that came with the message."""
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 1, socket.MSG_WAITALL)
    length = int.from_bytes(head, "little")
    if not length:
        _leave()  # the server did not start
    setup = READ_BY_WORKER.decode(connection.recv(length, socket.MSG_WAITALL))
    if not isinstance(setup, Setup):
        raise TypeError(f"the storage process begins with {type(setup).__name__}")
    return setup, descriptors[0] if descriptors else None


def _leave() -> None:
    # The storage process has ended: no answer can follow.
    os._exit(1)


def run(connection: int, bound: int, level: int) -> None:
    """Run the worker with these descriptors and this log level."""
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    logging.getLogger("jobmeter").setLevel(level)
    logging.captureWarnings(capture=True)
    allow_descriptors()
    HttpWorker(socket.socket(fileno=connection), socket.socket(fileno=bound)).run()
