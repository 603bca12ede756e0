"""Request and answer, between the connection that carries them and the ASGI application."""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from jobmeter.server.exchange import AsgiScope, Message, Reply

if TYPE_CHECKING:
    from jobmeter.server.http.connection import Connection

_DISCONNECT: Message = {"type": "http.disconnect"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_BODYLESS = frozenset({204, 304})
NO_SNIFFING = b"x-content-type-options: nosniff"
"""Header of every answer. A browser must take the body for its declared content type."""
_JOINED = 64 * 1024
"""Size up to which a body is written together with its headers: copying costs less than a second write."""


class Cycle:
    """Request with its answer. The application uses ``receive`` and ``send``; the connection uses the rest."""

    __slots__ = (
        "_chunked",
        "_chunks",
        "_connection",
        "_continue",
        "_delivered",
        "_left",
        "_start",
        "_waiter",
        "answered",
        "complete",
        "gone",
        "keep_alive",
        "scope",
        "started",
        "unread",
    )

    def __init__(self, connection: "Connection", scope: AsgiScope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.unread = 0
        """Bytes of the body that the application has not read."""
        self.complete = self.answered = self.started = self.gone = False
        self._connection = connection
        self._continue = expects_continue
        self._chunks: list[bytes] = []
        self._delivered = False
        self._waiter: asyncio.Future[None] | None = None
        self._start: Message | None = None
        self._chunked = False
        self._left: int | None = None

    def take(self, data: bytes) -> None:
        """Add a received part of the body."""
        self._chunks.append(data)
        self.unread += len(data)
        self._wake()

    def end(self) -> None:
        """Mark the request as complete."""
        self.complete = True
        self._wake()

    def disconnect(self) -> None:
        """Mark the client as disconnected."""
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def receive(self) -> Message:
        """Return the next ASGI message: parts of the body, then the disconnect."""
        while not self.gone and not (self.answered and self._delivered):
            if self._chunks or (self.complete and not self._delivered):
                return {"type": "http.request", "body": self._take_body(), "more_body": not self.complete}
            if self._continue and not self.started:
                self._continue = False
                self._connection.write(_CONTINUE)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return _DISCONNECT

    def take_whole_body(self, most: int) -> bytes | None:
        """Return a body of at most ``most`` bytes if all of it has arrived; else None, and ``receive`` gives it.

        Call it before ``receive``.
        """
        return self._take_body() if self.complete and not self._delivered and self.unread <= most else None

    def _take_body(self) -> bytes:
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.unread = 0
        self._delivered = self.complete
        self._connection.resume_reading()
        return body

    async def send(self, message: Message) -> None:
        """Send an ASGI message: the headers, then the body.

        Raises RuntimeError for an answer that HTTP cannot carry.
        """
        if message["type"] == "http.response.start":
            if self._start is not None:
                raise RuntimeError("the answer has begun already")
            self._start = message
            return
        if self._start is None or self.answered:
            raise RuntimeError("the body of an answer must follow its headers and precede its end")
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self.started:
            self.started = True
            head = self._head(self._start["status"], self._start.get("headers", ()))
            self._write(body, more=more, head=head)
        else:
            self._write(body, more=more, head=b"")
        if more:
            await self._connection.drain()
        else:
            if self._left and not self.gone:
                raise RuntimeError(f"the answer is {self._left} bytes shorter than announced")
            self.answered = True

    def answer(self, reply: Reply) -> None:
        """Send a complete answer. Raises RuntimeError for an answer that HTTP cannot carry."""
        self._write(reply.body, more=False, head=self._head(reply.status, reply.headers))
        self.started = self.answered = True

    def _write(self, body: bytes, *, more: bool, head: bytes) -> None:
        if self._chunked:
            pieces: tuple[bytes, ...] = (b"%x\r\n" % len(body), body, b"\r\n") if body else ()
            pieces = (head, *pieces) if more else (head, *pieces, b"0\r\n\r\n")
        else:
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0:
                    raise RuntimeError("the answer is longer than announced")
            pieces = (head, body)
        if len(body) <= _JOINED:
            self._connection.write(b"".join(pieces))
        else:
            self._connection.write(*filter(None, pieces))

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Write the status line and the headers, and set the framing of the body by them."""
        lines = [_STATUS[status], b"date: " + self._connection.date(), NO_SNIFFING]
        length: int | None = None
        closing = False
        for name, value in headers:
            lines.append(name + b": " + value)
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                closing = b"close" in value.lower()
        self.keep_alive = self.keep_alive and not closing
        old = self.scope["http_version"] == "1.0"
        if self.scope["method"] == "HEAD" or status in _BODYLESS:
            self._left = 0
        elif length is not None:
            self._left = length
        elif old:  # HTTP/1.0 has no chunks: the end of the connection ends the body
            self.keep_alive = False
        else:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked")
        if not self.keep_alive and not closing:
            lines.append(b"connection: close")
        elif old and self.keep_alive:
            lines.append(b"connection: keep-alive")
        head = b"\r\n".join((*lines, b"", b""))
        if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1 or b"\0" in head:
            raise RuntimeError("a header of the answer holds a line break")
        return head


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}".encode()


_STATUS: dict[int, bytes] = {status: _status_line(status) for status in range(100, 600)}
