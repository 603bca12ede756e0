"""Calls of a worker in the storage process, which calls the ASGI application for each, as a connection does."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from jobmeter.ingest.receipt import Receipt
from jobmeter.server.exchange import AsgiScope, Message, Reply
from jobmeter.server.http.connection import FAILED_HEADERS, Application
from jobmeter.server.workers.frames import (
    PIECE_BYTES,
    READ_BY_STORAGE,
    WINDOW_BYTES,
    AdmissionRequest,
    AdmissionResult,
    AnswerStart,
    BodyPart,
    ClientGone,
    Closed,
    Counts,
    End,
    Figures,
    Head,
    Headers,
    LookupResult,
    Part,
    Ready,
    RecordLookup,
    SamplesRead,
    SamplesStored,
    Searched,
    Taken,
    ToStorage,
    Want,
)
from jobmeter.store.channel import Channel

_log = logging.getLogger("jobmeter.server")
_DISCONNECT: Message = {"type": "http.disconnect"}


class _ReceivedCall:
    """Call of a worker. Its application uses ``receive`` and ``send``."""

    def __init__(self, head: Head, channel: Channel) -> None:
        self._channel = channel
        self._is_gone = False
        self._head = head
        self._chunks: deque[BodyPart] = deque()
        self._wants = head.is_pushed
        """True while the next part of the body is on its way."""
        self._changed = asyncio.Event()
        self._start: tuple[int, Headers] | None = None
        self._untaken = 0
        """Bytes of the answer that the client's connection has not taken yet."""
        self._is_authenticated = False

    def make_scope(self) -> AsgiScope:
        """Build the ASGI scope of the request."""
        head = self._head
        return {
            "method": head.method,
            "raw_path": head.path,
            "query_string": head.query,
            "headers": head.headers,
            "scheme": head.scheme,
            "client": head.client,
            "extensions": {"jobmeter.call": {"authenticated": self._note_authenticated}},
        }

    def _note_authenticated(self) -> None:
        self._is_authenticated = True

    def take(self, message: BodyPart | Taken | ClientGone) -> None:
        """Take a message of the worker."""
        if isinstance(message, BodyPart):
            self._chunks.append(message)
            self._wants = message.is_cut
        elif isinstance(message, Taken):
            self._untaken -= message.size
        else:
            self._is_gone = True
        self._changed.set()

    async def _wait(self) -> None:
        """Wait for the next message of the worker."""
        self._changed.clear()
        await self._changed.wait()

    async def receive(self) -> Message:
        """Return the next ASGI message: parts of the body, then the disconnect."""
        while not self._chunks:
            if self._is_gone:
                return _DISCONNECT
            if not self._wants:
                self._wants = True
                self._channel.send(Want(self._head.call, self._is_authenticated))
            await self._wait()
        part = self._chunks.popleft()
        return {"type": "http.request", "body": part.body, "more_body": part.more}

    async def send(self, message: Message) -> None:
        """Send an ASGI message: the headers, then the body."""
        if message["type"] == "http.response.start":
            self._start = message["status"], message["headers"]
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for at in range(0, max(len(body), 1), PIECE_BYTES):
            piece = body[at : at + PIECE_BYTES]
            await self._send(piece, more=more or at + PIECE_BYTES < len(body))

    async def _send(self, piece: bytes, *, more: bool) -> None:
        number = self._head.call
        if self._start is None:
            self._channel.send(Part(number, piece, more))
        else:
            status, headers = self._start
            self._start = None
            self._channel.send(AnswerStart(number, status, headers, piece, more, self._is_authenticated))
        self._untaken += len(piece)
        while more and self._untaken > WINDOW_BYTES and not self._is_gone:
            await self._wait()
        await self._channel.drain()

    def answer(self, reply: Reply) -> None:
        """Send a complete answer, which ends the call."""
        number, status, flag = self._head.call, reply.status, self._is_authenticated
        start = AnswerStart(number, status, reply.headers, reply.body, more=False, authenticated=flag, is_over=True)
        self._channel.send(start)


class SharedRecords(Protocol):
    """Records that workers cache, the window that they read, and the counts of their answers."""

    @property
    def descriptor(self) -> int | None:
        """File descriptor of the window's memory; None if workers must not answer."""
        ...

    def find(self, about: Searched) -> bytes | None:
        """Return the records in msgpack; None if no worker may cache them. May wait."""
        ...

    def count(self, counts: Counts) -> None:
        """Count the answers of a worker."""
        ...

    def admit(self, about: AdmissionRequest) -> bool:
        """Use up the nonce, the rate and the budget of a worker's answer. False if the worker must forward the call."""
        ...

    def take_samples(self, read: SamplesRead, done: Callable[[Receipt | None], None]) -> None:
        """Store samples. ``done`` gets the receipt when it is true, None if the worker must forward the call."""
        ...


class WorkerGateway:
    """Storage process's end of the connection with one worker."""

    def __init__(
        self,
        application: Application,
        ready: Callable[[], None],
        closed: Callable[[str], None],
        lost: Callable[[], None],
        records: SharedRecords | None = None,
    ) -> None:
        """``ready`` is called once the worker accepts connections, ``lost`` once at the end.

        ``closed`` gets the reason of each connection that the worker closed or refused. Without ``records`` the worker
        forwards every call.
        """
        self.channel = Channel(READ_BY_STORAGE, self._take, self._note_lost_worker)
        self.ready = asyncio.Event()
        """Set once the worker accepts connections."""
        self.connections = 0
        """Number of open HTTP connections at the worker's last report, at most a second ago."""
        self._application = application
        self._on_ready = ready
        self._closed = closed
        self._on_loss = lost
        self._records = records
        self._lookups: set[asyncio.Future[bytes | None]] = set()
        self._calls: dict[int, _ReceivedCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def _take(self, message: ToStorage) -> None:
        if isinstance(message, Head):
            self._begin(message)
        elif isinstance(message, BodyPart | Taken | ClientGone):
            call = self._calls.get(message.call)
            if call is not None:  # else the call has ended
                call.take(message)
        elif isinstance(message, Figures):
            self.connections = message.connections
        elif isinstance(message, Closed):
            self._closed(message.reason)
        elif isinstance(message, Ready):
            self.ready.set()
            self._on_ready()
        else:
            self._take_own_answer(message)

    def _take_own_answer(self, message: Counts | AdmissionRequest | SamplesRead | RecordLookup) -> None:
        """Take a message about a call that the worker answers itself."""
        if isinstance(message, AdmissionRequest):
            self._admit(message)
        elif isinstance(message, SamplesRead):
            self._store_samples(message)
        elif isinstance(message, RecordLookup):
            self._look_up(message)
        elif self._records is not None:
            self._records.count(message)

    def _look_up(self, lookup: RecordLookup) -> None:
        records, loop = self._records, asyncio.get_running_loop()
        if records is None:
            self.channel.send(LookupResult(lookup.number, None))
            return
        found = loop.run_in_executor(None, records.find, lookup.about)
        self._lookups.add(found)
        found.add_done_callback(lambda done: self._send_records(lookup.number, done))

    def _send_records(self, number: int, done: asyncio.Future[bytes | None]) -> None:
        self._lookups.discard(done)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.error("a search for a worker failed", exc_info=error)
        self.channel.send(LookupResult(number, None if done.cancelled() or error else done.result()))

    def _admit(self, about: AdmissionRequest) -> None:
        is_admitted = False
        try:
            is_admitted = self._records is not None and self._records.admit(about)
        except Exception:  # noqa: BLE001 - the worker that waits must get a result
            _log.exception("an answer of a worker could not be admitted")
        self.channel.send(AdmissionResult(about.number, is_admitted))

    def _store_samples(self, read: SamplesRead) -> None:
        def send(receipt: Receipt | None) -> None:
            self.channel.send(SamplesStored(read.number, receipt))

        try:
            if self._records is None:
                send(None)
            else:
                self._records.take_samples(read, send)
        except Exception:  # noqa: BLE001 - the worker that waits must get a result
            _log.exception("samples of a worker could not be stored")
            send(None)

    def _begin(self, head: Head) -> None:
        call = _ReceivedCall(head, self.channel)
        try:
            work = self._application(call.make_scope(), call.receive, call.send)
        except Exception:  # noqa: BLE001 - a client that waits must get an answer
            _log.exception("a request failed before the application accepted it")
            work = Reply(500, FAILED_HEADERS, b"", call.send)
        if isinstance(work, Reply) and len(work.body) <= PIECE_BYTES:
            call.answer(work)
            return
        self._calls[head.call] = call
        task = asyncio.ensure_future(_await_end(work))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._finish_call(head.call, task))

    def _finish_call(self, number: int, task: asyncio.Task[None]) -> None:
        del self._calls[number]
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("an answer failed", exc_info=error)
        self.channel.send(End(number))

    def _note_lost_worker(self) -> None:
        self.connections = 0
        for number, call in self._calls.items():
            call.take(ClientGone(number))
        self._on_loss()


async def _await_end(work: Awaitable[None]) -> None:
    await work
