"""HTTP connection: parses requests from received bytes and answers them in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httptools

from jobmeter.server.exchange import WHOLE_BODY, AsgiScope, Receive, Reply, Send
from jobmeter.server.http.cycle import NO_SNIFFING, Cycle
from jobmeter.server.http.limits import (
    HEAD_SECONDS,
    IDLE_SECONDS,
    KEYED_IDLE_SECONDS,
    STALL_SECONDS,
    Connections,
    Reason,
    extend_deadline,
)
from jobmeter.server.http.validity import VERSIONS, is_host, is_http

_log = logging.getLogger("jobmeter.server")

Application = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

HEAD_BYTES = 64 * 1024
"""Largest size of a request line with its headers."""
HEADERS = 256
"""Most headers in a request."""
UNREAD_BYTES = 64 * 1024
"""Bytes of a body that may wait for the application before reading from the connection pauses."""
SHORT_BODY_SECONDS = 1.0
"""Seconds that a request waits for a body of at most ``UNREAD_BYTES`` before its answer begins."""
LINGER_SECONDS = 5.0
"""Time in seconds to read and drop further data from a refused client, so that it can read the refusal."""
EOF_SECONDS = 0.05
"""Time in seconds for an answer after the client has sent its last byte. Later the client counts as disconnected."""
PIPELINED = 16
"""Requests that may wait while one is answered. The connection closes after them if a client sends more."""
_BODY = frozenset({b"content-length", b"transfer-encoding"})
HEALTH = frozenset({b"/healthz", b"/readyz"})
"""Paths that are answered even when all connections are busy."""
_BUSY = b'{"error":{"code":"unavailable","message":"the server has reached its connection limit, try again"}}'
_BUSY_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_BUSY)),
    (b"retry-after", b"1"),
    (b"connection", b"close"),
]
FAILED_HEADERS = [(b"content-length", b"0"), (b"connection", b"close")]


class _RefusedError(Exception):
    """Request that is refused: its status, and a reason if the status text does not suffice."""

    def __init__(self, status: int, text: bytes = b"") -> None:
        super().__init__(status)
        self.status, self.text = status, text


class Connection(asyncio.Protocol):
    """Client connection; implements the callbacks of ``asyncio.Protocol`` and ``httptools.HttpRequestParser``."""

    def __init__(self, application: Application, connections: Connections, date: Callable[[], bytes]) -> None:
        self.keyed = False
        self.date = date
        self._application = application
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._deadline = connections.clock() + IDLE_SECONDS
        self._queue: deque[Cycle] = deque()
        self._active: Cycle | None = None
        self._parsed: Cycle | None = None
        self._task: asyncio.Task[None] | None = None
        self._url, self._headers = b"", list[tuple[bytes, bytes]]()
        self._hosts: list[bytes] = []
        self._valid_host = b""
        """Last ``Host`` value that was found valid: most requests of a connection repeat it."""
        self._data: bytes | bytearray = b""
        """Data being parsed. It reaches back at least to the start of a request with incomplete headers."""
        self._head_bytes: int | None = None
        """Bytes received of incomplete headers; None between requests and during a body."""
        self._continue = False
        self._body = False
        """True if the request with incomplete headers has a body. A body of length 0 does not count."""
        self._is_short = False
        """True if that body is announced and small, so that the answer begins when all of it has arrived."""
        self._awaited: Cycle | None = None
        """Newest request whose short body did not arrive with its headers."""
        self._answered = 0
        """Requests from one piece of data that were answered directly."""
        self._refused = b""
        """Refusal to send before the connection is closed."""
        self._deaf = False
        """True when further data from the client is dropped."""
        self._ending = False
        self._paused = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._unsent, self._write_deadline = 0, 0.0
        self.handshake: asyncio.Task[Any] | None = None
        """Task that sets up the connection of an accepted socket; None once done."""
        self.limited = False
        """True if the connection may only request the server's health."""
        self._extensions = {"jobmeter.call": {"authenticated": self._note_authenticated}}
        self._address: dict[str, Any] = {}

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit it
        peer = transport.get_extra_info("peername")
        self._address = {
            "client": tuple(peer[:2]) if peer else None,
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        }

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Cancel the running request and release the connection."""
        self._transport = None
        self._connections.forget(self)
        self._queue.clear()
        for cycle in (self._active, self._parsed):
            if cycle is not None:
                cycle.disconnect()
        self._drained.set()
        # These refer back to the connection: without them its memory is free now, not at the next garbage collection.
        self._parsed, self._parser, self._extensions = None, None, {}

    def data_received(self, data: bytes) -> None:
        """Parse received data and begin to answer."""
        if self._deaf or (self._ending and not self._receiving):
            return
        self._answered = 0
        if self._data:
            self._data = bytearray(self._data) if isinstance(self._data, bytes) else self._data
            self._data += data
        else:
            self._data = data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ending = True  # only HTTP is spoken here: the request is answered, and what follows is dropped
        except httptools.HttpParserError as error:
            self._begin_early()
            cause = error.__context__
            if not self._ending or self._receiving:
                self._refuse(cause if isinstance(cause, _RefusedError) else _RefusedError(400))
            return
        if self._head_bytes is None:
            self._data = b""
        else:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(_RefusedError(431))
        self._begin_early()

    def eof_received(self) -> bool:
        """Give an answer under way ``EOF_SECONDS``: a client may end its sending direction after its request."""
        if self._active is None or self._address["scheme"] == "https":
            return False
        self._loop.call_later(EOF_SECONDS, self._close_after_eof)
        return True

    def _close_after_eof(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """Pause writing until the client has read more."""
        self._drained.clear()
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()
        self._write_deadline = self._connections.clock() + STALL_SECONDS
        self._connections.mark_writing(self, blocked=True)

    def resume_writing(self) -> None:
        """Resume writing and answering."""
        self._connections.mark_writing(self, blocked=False)
        self._drained.set()
        self._begin_next()

    # httptools.HttpRequestParser

    def on_message_begin(self) -> None:
        """Reset the state for a new request."""
        if self._ending or len(self._queue) >= PIPELINED or self._answered > PIPELINED:
            raise _RefusedError(429)
        self._url, self._headers, self._head_bytes, self._continue, self._body = b"", [], 0, False, False
        self._hosts, self._is_short = [], False
        if self._active is None:
            self._deadline = self._connections.clock() + HEAD_SECONDS

    def on_url(self, url: bytes) -> None:
        """Take a part of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer after the last chunk of a body. Trailers are ignored."""
        if self._head_bytes is None:
            return
        name = name.lower()
        if name == b"expect":
            self._continue = value.lower() == b"100-continue"
        elif name in _BODY:
            size = value.strip(b" \t")
            # A long number is no short body, and int refuses thousands of digits.
            self._is_short = (
                name == b"content-length" and len(size) < 6 and size.isdigit() and int(size) <= UNREAD_BYTES
            )
            self._body = self._body or size != b"0"
        elif name == b"host":
            self._hosts.append(value.strip(b" \t"))
        self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Check the headers and prepare the request."""
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if size > HEAD_BYTES or len(self._headers) > HEADERS:
            raise _RefusedError(431)
        self._head_bytes = None
        version = self._parser.get_http_version()
        self._check_head(version)
        cycle = self._parsed = Cycle(
            self,
            self._scope(version),
            keep_alive=self._parser.should_keep_alive() and not self._parser.should_upgrade() and not self._ending,
            expects_continue=self._continue and version != "1.0",
        )
        self._queue.append(cycle)
        self._deadline = self._connections.clock() + STALL_SECONDS
        if self._active is not None:
            self._pause(paused=True)

    def _check_head(self, version: str) -> None:
        """Refuse requests that the parser accepts but HTTP/1.1 forbids."""
        if version == "0.9" or not is_http(self._data, self._parser.get_method(), self._url, version):
            raise _RefusedError(400)
        if version not in VERSIONS:
            raise _RefusedError(505)
        hosts = self._hosts
        if len(hosts) != 1:
            if hosts or version == "1.1":
                raise _RefusedError(400, _WRONG_HOST)
        elif hosts[0] != self._valid_host:
            if not is_host(hosts[0]):
                raise _RefusedError(400, _WRONG_HOST)
            self._valid_host = hosts[0]

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        cycle = self._parsed
        if cycle is None:
            return
        cycle.take(body)
        self._deadline = extend_deadline(self._deadline, len(body), self._connections.clock())
        if cycle.unread > UNREAD_BYTES:
            self._pause(paused=True)

    def on_message_complete(self) -> None:
        """Complete a request."""
        cycle, self._parsed = self._parsed, None
        if cycle is not None:
            cycle.end()
            # Data after a request that ends the connection is dropped (RFC 9112, section 9.6).
            self._ending = self._ending or not cycle.keep_alive
            if cycle is self._active:
                self._connections.mark_working(self)
            elif self._active is None:
                self._begin_next()

    # For cycles

    def write(self, *pieces: bytes) -> None:
        """Send the pieces; does nothing when the connection is gone."""
        if self._transport is not None and not self._transport.is_closing():
            for piece in pieces:
                self._transport.write(piece)

    async def drain(self) -> None:
        """Wait until the client has read enough of the data or is gone."""
        if not self._drained.is_set():
            await self._drained.wait()

    def resume_reading(self) -> None:
        """Resume reading after the application took the received part of the body."""
        if not self._queue:
            self._pause(paused=False)

    # Limited, for limits

    def find_overdue_reason(self, now: float) -> Reason | None:
        """Return the reason to close the connection now; None if it may stay."""
        if self._transport is not None and not self._drained.is_set():
            unsent = self._transport.get_write_buffer_size()
            self._write_deadline = extend_deadline(self._write_deadline, max(0, self._unsent - unsent), now)
            self._unsent = unsent
            return Reason.SLOW if now >= self._write_deadline else None
        if self._paused or now < self._deadline:
            return None
        return Reason.SLOW if self._receiving else Reason.IDLE

    def cut(self) -> None:
        """Close the connection at once."""
        self._ending = True
        if self.handshake is not None:
            self.handshake.cancel()
        if self._transport is not None:
            self._transport.abort()

    # For the server

    def finish(self) -> None:
        """Accept no further requests; close now, or after the running requests are answered."""
        self._ending = True
        if not self._receiving:
            self._close_when_answered()
        for cycle in (self._active, *self._queue):
            if cycle is not None:
                cycle.keep_alive = False

    @property
    def _receiving(self) -> bool:
        """True while a request has arrived in part."""
        return self._parsed is not None or self._head_bytes is not None

    def _note_authenticated(self) -> None:
        self.keyed = True

    def _scope(self, version: str) -> AsgiScope:
        """Build the ASGI scope of the request. The target is not parsed here: it may be in absolute form."""
        target, _, query = self._url.partition(b"?")
        return {
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "raw_path": target,
            "query_string": query.partition(b"#")[0],
            "headers": self._headers,
            "extensions": self._extensions,
            **self._address,
        }

    def _begin_next(self) -> None:
        """Begin to answer the next requests if none is running; else wait for the client."""
        while self._active is None and self._transport is not None and self._drained.is_set():
            if not self._queue:
                self._pause(paused=False)
                self._close_when_answered()
                return
            cycle = self._active = self._queue.popleft()
            if self.limited and not self.keyed and cycle.scope["raw_path"] not in HEALTH:
                body = b"" if cycle.scope["method"] == "HEAD" else _BUSY
                work: Awaitable[None] = Reply(503, _BUSY_HEADERS, body, cycle.send)
            else:
                work = self._apply(cycle)
            if not isinstance(work, Reply):
                self._begin(cycle, work)
            elif not self._answer(cycle, work):
                return

    def _apply(self, cycle: Cycle) -> Awaitable[None]:
        """Call the application. A failure of the call is logged and answered with status 500."""
        scope = {**cycle.scope, WHOLE_BODY: cycle.take_whole_body} if cycle.unread else cycle.scope
        try:
            return self._application(scope, cycle.receive, cycle.send)
        except Exception:  # noqa: BLE001 - a client that waits must get an answer
            _log.exception("a request failed before the application accepted it")
            return Reply(500, FAILED_HEADERS, b"", cycle.send)

    def _begin_early(self) -> None:
        """Begin to answer a request before its body is complete, because its headers may refuse it.

        By then the part that arrived with the headers has been read.
        """
        if self._parsed is None or not self._body or self._active is not None:
            return
        if not self._is_short or self._continue or self.limited:
            self._begin_next()
        elif self._awaited is not self._parsed:
            self._awaited = self._parsed
            self._loop.call_later(SHORT_BODY_SECONDS, self._end_wait, self._parsed)

    def _end_wait(self, cycle: Cycle) -> None:
        """Begin to answer a request whose short body does not arrive: a client that stalls gets its answer too."""
        if cycle is self._parsed and self._active is None:
            self._begin_next()

    def _answer(self, cycle: Cycle, reply: Reply) -> bool:
        """Send a complete answer. True if the connection stays open."""
        self._answered += 1
        try:
            cycle.answer(reply)
        except RuntimeError:
            _log.exception("an answer failed")
        return self._finish_cycle(cycle)

    def _begin(self, cycle: Cycle, work: Awaitable[None]) -> None:
        """Answer a request in a new task."""
        if cycle.complete:
            self._connections.mark_working(self)
        if not self._queue and cycle.unread <= UNREAD_BYTES:
            self._pause(paused=False)
        self._task = self._loop.create_task(work)  # type: ignore[arg-type]
        self._task.add_done_callback(self._finish_task)

    def _finish_task(self, task: "asyncio.Task[None]") -> None:
        """Finish a request whose task has ended."""
        cycle, self._task = self._active, None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("an answer failed", exc_info=error)
        if cycle is None or self._transport is None:
            self._active = None
        elif self._finish_cycle(cycle):
            self._begin_next()

    def _finish_cycle(self, cycle: Cycle) -> bool:
        """Finish a request. True if the connection stays open."""
        self._active = None
        if self._transport is None:
            return False
        if not cycle.answered and not (self._refused and not cycle.started):
            self._ending = True
            self._transport.abort()  # abort, so that the client does not take a part for the whole
        elif not (cycle.answered and cycle.keep_alive and cycle.complete):
            self._ending = True
            self._queue.clear()
            self._close(whole=cycle.complete)
        else:
            self._deadline = self._connections.clock() + (KEYED_IDLE_SECONDS if self.keyed else IDLE_SECONDS)
            self._connections.mark_waiting(self)
            return True
        return False

    def _close_when_answered(self) -> None:
        """Close if no request is running and no more are accepted."""
        if self._active is None and not self._queue and (self._refused or self._ending):
            self._close(whole=not self._refused)

    def _close(self, *, whole: bool) -> None:
        """Close after the written data is sent.

        With ``whole`` False, further data from the client is first read and dropped: closing would make a client that
        is still sending lose the answer.
        """
        if self._transport is None:
            return
        self.write(self._refused)
        if whole or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._deaf = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._paused, self._deadline = False, self._connections.clock() + LINGER_SECONDS
        self._connections.mark_waiting(self)

    def _refuse(self, why: _RefusedError) -> None:
        """Answer an invalid request after the answers to earlier requests, and close."""
        self._refused, self._deaf = _refusal(why), True
        if self._parsed is not None:
            self._parsed.disconnect()
        self._parsed, self._head_bytes = None, None
        self._close_when_answered()

    def _pause(self, *, paused: bool) -> None:
        if self._transport is None or paused == self._paused or self._deaf:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._deadline = max(self._deadline, self._connections.clock() + STALL_SECONDS)
            self._transport.resume_reading()


_REASONS = {
    400: (b"Bad Request", b"this is not HTTP/1.1\n"),
    429: (b"Too Many Requests", b"too many pipelined requests: wait for answers before sending more\n"),
    431: (b"Request Header Fields Too Large", b"the headers of a request are too large or too many\n"),
    505: (b"HTTP Version Not Supported", b"this server speaks HTTP/1.1 and HTTP/1.0\n"),
}
_WRONG_HOST = b"a request needs exactly one Host header, like `Host: 127.0.0.1:8400` (RFC 9112, section 3.2)\n"


def _refusal(why: _RefusedError) -> bytes:
    phrase, text = _REASONS[why.status]
    text = why.text or text
    head = b"HTTP/1.1 %d %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n%b\r\nconnection: close\r\n\r\n"
    return head % (why.status, phrase, len(text), NO_SNIFFING) + text
