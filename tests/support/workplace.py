"""Storage process and worker processes in one event loop, without a listening socket."""

import asyncio
import json
import re
import socket
from contextlib import asynccontextmanager

from jobmeter.model.time import MINUTE, SECOND
from jobmeter.server.exchange import WHOLE_BODY, Reply
from jobmeter.server.workers.answers import WorkerAnswers
from jobmeter.server.workers.forward import Forwarder
from jobmeter.server.workers.frames import READ_BY_WORKER, AdmissionResult, LookupResult, SamplesStored
from jobmeter.server.workers.gateway import WorkerGateway
from jobmeter.server.workers.owner import OwnedRecords
from jobmeter.store.channel import Channel
from jobmeter.store.window.shared import SharedWindow
from tests.support.asgi import send
from tests.support.frames import FRAMES, row, samples
from tests.support.serving import BASE, serving
from tests.support.waiting import until

_IDS = re.compile(rb'"request_?id":"[^"]*"', re.IGNORECASE)


class Workplace:
    """Storage process and its workers in one event loop."""

    def __init__(self, served, records):
        self.served, self.records = served, records
        self.own = 0
        """Number of answers that workers gave without the storage process."""
        self.workers: list[tuple[WorkerAnswers, Forwarder]] = []

    @property
    def answers(self):
        return self.workers[0][0]

    @property
    def now_ms(self):
        return self.served.clock.now_ms()

    @property
    def services(self):
        return self.served.application.services

    def metrics(self, job="j1", metric="gpu.utilization"):
        span = f"start={self.now_ms - 10 * MINUTE}&end={self.now_ms}"
        return f"{BASE}/jobs/{job}/metrics?metric={metric}&{span}&step=15s&by=replica"

    async def ask(self, target, token=None, worker=0):
        """Return the status and the body of an answer from a worker; None as the worker asks the storage process."""
        return await self.send(
            "GET", target, {"Authorization": f"Bearer {token or self.served.admin.token}"}, b"", worker
        )

    async def send(self, method, target, headers, body=b"", worker=0, kept_open=lambda: None, receive=None):
        """Send a request like ``ask``. ``kept_open`` is called when its connection can stay open.

        ``receive`` replaces the function that passes the body to the worker.
        """

        def through_worker(scope, given, send):
            scope["extensions"] = {"jobmeter.call": {"authenticated": kept_open}}
            if receive:
                scope.pop(WHOLE_BODY, None)
            return self.workers[worker][1](scope, receive or given, send)

        length = {"Content-Length": str(len(body))} if body and isinstance(body, bytes) else {}
        application = self.served.application if worker is None else through_worker
        reply = await send(application, method, target, body, {**headers, **length})
        return reply.status, _IDS.sub(b"", reply.body)

    async def stored(self, target, token=None):
        """Return the status and the body of the storage process's answer."""
        return await self.ask(target, token, None)

    async def write(self, *rows):
        headers = {"Authorization": f"Bearer {self.served.admin.token}", "Content-Type": FRAMES}
        reply = await send(self.served.application, "POST", f"{BASE}/ingest", samples(rows), headers)
        assert reply.status == 200

    async def change(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.served.admin.token}", "Content-Type": "application/json"}
        content = b"" if body is None else json.dumps(body).encode()
        reply = await send(self.served.application, method, BASE + path, content, headers)
        assert reply.status < 300, reply.body
        return reply

    def reader(self):
        """Create a key and use it once, because the storage process records only the first use in ten minutes."""
        key = self.served.key("reader")
        self.services.registry.keys.mark_used(key.id, self.now_ms)
        return key

    def note_searches(self):
        """Return the list that records the worker's searches from now on."""
        searched, find = [], self.records.find

        def noting(about):
            searched.append(about)
            return find(about)

        self.records.find = noting
        return searched

    async def counted(self):
        """Return the number of the worker's own answers that the storage process has counted."""
        await self.ask("/healthz")  # The worker sends its counts before this forwarded call.
        return self.records.answers

    def add(self, answers, channel):
        """Add a worker, and return its ASGI application."""

        def answer(scope, receive, send):
            found = answers(scope, receive, send)
            if found is not None and not isinstance(found, Reply):
                return later(found)
            self.own += found is not None
            return found

        async def later(answer):
            found = await answer
            self.own += isinstance(found, Reply)
            return found

        self.workers.append((answers, Forwarder(channel, answer)))
        return self.workers[-1][1]

    async def settle(self):
        """Wait until no worker searches."""
        await until(lambda: not any(answers.is_searching for answers, _ in self.workers))

    async def answers_itself(self, target, token=None):
        """Ask, at most six times, until the worker answers alone: it searches for the key, the job and the series."""
        before = self.own
        for _ in range(6):
            found = await self.ask(target, token)
            if self.own > before:
                return found
            await self.settle()
        return None


@asynccontextmanager
async def working(folder, count=1, **options):
    """Run a storage process with ``count`` workers."""
    served = serving(folder, **options)
    records = OwnedRecords(served.application.services)
    place = Workplace(served, records)
    loop = asyncio.get_running_loop()
    ends = [await _connected(place) for _ in range(count)]
    try:
        yield place
    finally:
        for (answers, _), (channel, ended) in zip(place.workers, ends, strict=True):
            answers.close()
            channel.cut()
            await ended.wait()
        await loop.run_in_executor(None, served.application.close)


async def _connected(place):
    """Add a worker that is connected to the storage process."""
    ours, theirs = socket.socketpair()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    gateway = WorkerGateway(place.served.application, lambda: None, lambda _: None, ended.set, place.records)
    await loop.create_connection(lambda: gateway.channel, sock=ours)

    def take(message):
        (answers if isinstance(message, LookupResult | AdmissionResult | SamplesStored) else forwarder).take(message)

    channel = Channel(READ_BY_WORKER, take, lambda: None)
    await loop.create_connection(lambda: channel, sock=theirs)
    window = SharedWindow.open(place.records.descriptor or 0)
    answers = WorkerAnswers(place.services.settings, window, channel, place.served.clock)
    answers.begin()
    forwarder = place.add(answers, channel)
    return channel, ended


def point(place, seconds, value, metric="gpu.utilization", **names):
    times = [(place.now_ms - seconds * SECOND, value)]
    return row(metric, times, **{"job": "j1", "replica": "worker-0", "node": "n1", "device": "0", **names})
