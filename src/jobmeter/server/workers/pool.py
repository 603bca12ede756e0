"""Worker processes of a server: started, replaced when they die, and ended."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import uvloop
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jobmeter.errors import UnavailableError
from jobmeter.server.http.connection import Application
from jobmeter.server.stopping import Stopping
from jobmeter.server.workers.frames import Setup, Stop
from jobmeter.server.workers.gateway import SharedRecords, WorkerGateway
from jobmeter.server.workers.process import WorkerProcess
from jobmeter.store.channel import encode_message

_log = logging.getLogger("jobmeter.server")

_START_SECONDS = 60.0
"""Longest time in seconds until the workers of a starting server accept connections."""
_STEADY_SECONDS = 60.0
"""Life of a worker in seconds after which its end counts as a first end again."""
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
"""Seconds until a worker that died is replaced. Each further early end doubles them."""


_Connected = Callable[[Callable[[], None]], WorkerGateway]


class WorkerPool:
    """Worker processes that accept connections on one socket. An ASGI application answers their calls."""

    def __init__(self, bound: socket.socket, setup: Setup, workers: Iterable[WorkerProcess]) -> None:
        """Take over workers, which wait for ``serve``."""
        self._bound = bound
        self._setup = setup
        self._restarts = 0
        self._window: int | None = None
        self._gateways: set[WorkerGateway] = set()
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._workers = set(workers)

    def serve(
        self,
        application: Application,
        stopping: Stopping,
        listening: Callable[[], None],
        finished: Callable[[], bool],
        closed: Callable[[str], None],
        records: SharedRecords | None = None,
    ) -> None:
        """Serve as ``HttpServer.serve`` does. Raises UnavailableError when no worker starts.

        ``closed`` gets the reason of each HTTP connection that a worker closed or refused. Workers answer some calls
        themselves from ``records`` and the window.
        """
        self._window = None if records is None else records.descriptor

        def connected(lost: Callable[[], None]) -> WorkerGateway:
            return WorkerGateway(application, self._changed.set, closed, lost, records)

        with ThreadPoolExecutor(1, "jobmeter-workers") as aside:
            aside.submit(lambda: uvloop.run(self._serve(connected, stopping, listening, finished))).result()

    def close(self) -> None:
        """Kill the remaining workers."""
        for worker in tuple(self._workers):
            worker.end()
        self._workers.clear()

    @property
    def connections(self) -> int:
        """Number of open HTTP connections of all workers, at most a second ago."""
        return sum(gateway.connections for gateway in tuple(self._gateways))

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers."""
        return [worker.process.pid for worker in tuple(self._workers)]

    def iterate_metrics(self) -> Iterator[Metric]:
        """Return metrics about the workers."""
        running = sum(gateway.ready.is_set() for gateway in tuple(self._gateways))
        yield GaugeMetricFamily("jobmeter_workers", "Worker processes that accept connections.", running)
        yield CounterMetricFamily("jobmeter_worker_restarts", "Worker processes that died.", self._restarts)

    async def _serve(
        self,
        connected: _Connected,
        stopping: Stopping,
        listening: Callable[[], None],
        finished: Callable[[], bool],
    ) -> None:
        loop = asyncio.get_running_loop()
        lives = [loop.create_task(self._maintain(connected, worker)) for worker in tuple(self._workers)]
        await self._await_start(len(lives))
        listening()
        stopping.call_at_stop(lambda: loop.call_soon_threadsafe(self._stop.set))
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)
            if finished():
                stopping.begin()
        self._bound.close()
        for gateway in self._gateways:
            gateway.channel.send(Stop())
        await asyncio.wait(lives, timeout=stopping.seconds_left)
        for gateway in self._gateways:
            gateway.channel.cut()
        await asyncio.wait(lives)

    async def _await_start(self, count: int) -> None:
        """Wait until all workers accept connections. After the time limit one worker suffices."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while sum(gateway.ready.is_set() for gateway in self._gateways) < count:
                    self._changed.clear()
                    await self._changed.wait()
        if not any(gateway.ready.is_set() for gateway in self._gateways):
            raise UnavailableError(f"no worker process accepts connections after {_START_SECONDS:g} seconds")

    async def _maintain(self, connected: _Connected, worker: WorkerProcess) -> None:
        """Serve the calls of a worker, and of its replacements."""
        delay = _FIRST_DELAY
        while True:
            await self._serve_worker(connected, worker)
            if self._stop.is_set():
                return
            self._restarts += 1
            if time.monotonic() - worker.started >= _STEADY_SECONDS:
                delay = _FIRST_DELAY
            _log.error(
                "worker process %d ended with status %s; another one starts in %g seconds",
                worker.process.pid,
                worker.process.returncode,
                delay,
            )
            replacement = None
            while replacement is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), delay)
                if self._stop.is_set():
                    return
                delay = min(2 * delay, _LONGEST_DELAY)
                try:
                    replacement = WorkerProcess(self._bound)
                except OSError as error:
                    _log.error("a worker process cannot start, retrying in %g seconds: %s", delay, error)
            worker = replacement
            self._workers.add(worker)

    async def _serve_worker(self, connected: _Connected, worker: WorkerProcess) -> None:
        """Serve the calls of a worker until its end."""
        loop, lost = asyncio.get_running_loop(), asyncio.Event()
        gateway = connected(lost.set)
        with suppress(OSError):  # a worker that has died is noticed below
            socket.send_fds(
                worker.socket, [encode_message(self._setup)], [] if self._window is None else [self._window]
            )
        await loop.create_connection(lambda: gateway.channel, sock=worker.socket)
        self._gateways.add(gateway)
        if self._stop.is_set():
            gateway.channel.send(Stop())
        await lost.wait()
        self._gateways.discard(gateway)
        await loop.run_in_executor(None, worker.end)
        self._workers.discard(worker)
