"""HTTP request and answer on the raw ASGI interface: the call as sent, and its body within bounds."""

import asyncio
import io
import logging
import random
import zlib
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from jobmeter.access.call import Call
from jobmeter.access.forwarded import TrustedProxies
from jobmeter.access.memory import MemoryAccount
from jobmeter.dialects.base import Answer
from jobmeter.errors import (
    ConfigurationError,
    DamagedDataError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    QueryTimeoutError,
    UnavailableError,
)

_log = logging.getLogger("jobmeter.server")

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")

_RANDOM = random.Random()  # noqa: S311 - of its own: the shared one belongs to the program
_WITHOUT_BODY = frozenset({204, 304})
_NONE = frozenset({"", "0"})
WHOLE_BODY = "jobmeter.body"
"""Key of an ASGI scope: a function that returns the whole body if it has arrived, see ``Cycle.take_whole_body``."""
_NO_EXTENSIONS: Mapping[str, Any] = {}
_NOT_VERSION, _VERSION_4 = ~(0xF000 << 64 | 0xC000 << 48), 0x4000 << 64 | 0x8000 << 48
"""Bits of a UUID that name its version (RFC 9562, sections 4.1 and 4.2), and their values for a random UUID."""
MEMORY_BYTES = 16 * 1024
"""Size of a body beyond which reading would block the event loop for too long."""
STEP_BYTES = 256 * 1024
"""Bytes of a compressed body that are read and unpacked in one step."""
BODY_SECONDS = 30
"""Longest silence in seconds of a client that is sending a body."""
DROP_SECONDS = 5.0
"""Time limit in seconds for reading and dropping the rest of a refused body."""


class ClientGoneError(Exception):
    """The client closed its connection before it had an answer."""


class Reply:
    """Complete answer. Awaiting it sends it by ASGI; our own server writes it directly, without a task."""

    __slots__ = ("_send", "body", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
        """``headers`` state the length of the body, if there is a body."""
        self.status = status
        self.headers = headers
        self.body = body
        self._send = send

    def __await__(self) -> Generator[Any, Any, None]:
        return self._send_head_and_body().__await__()

    async def _send_head_and_body(self) -> None:
        await self._send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await self._send({"type": "http.response.body", "body": self.body, "more_body": False})


class Exchange:
    """Request that is being answered. Belongs to one task.

    ``call`` has an empty body until ``read_body``, and again after ``close``. ``status`` is 0 until the answer begins.
    ``body_size`` is the length of the body that was read.
    """

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send, proxies: TrustedProxies | None = None) -> None:
        """Headers of ``proxies`` are trusted to name the client; None trusts no proxy."""
        self.receive = receive
        self.request_id = make_request_id()
        self.status = 0
        self.body_size = 0
        call = _call(scope)
        self.call = self._head = proxies.resolve_call(call) if proxies else call
        self.has_body = self.call.get_header("content-length") not in _NONE or bool(
            self.call.get_header("transfer-encoding")
        )
        """True when the headers announce a body."""
        self._memory: MemoryAccount | None = None
        self._unread = True
        self._take_whole_body: Callable[[int], bytes | None] | None = scope.get(WHOLE_BODY)
        self._send = send

    @property
    def is_body_unread(self) -> bool:
        """True if there is a body that was not read: the client may still be sending it."""
        return self._unread and self.has_body

    @property
    def may_have_arrived(self) -> bool:
        """True if ``take_arrived_body`` may find a body."""
        return self._take_whole_body is not None

    def take_arrived_body(self, most: int, memory: MemoryAccount | None) -> bool:
        """Take a body of at most ``most`` bytes into ``call``, if all of it has arrived; else take nothing.

        Raises ThrottledError when memory for it is not available. Without ``memory`` the caller bounds it.
        """
        body = None if self._take_whole_body is None else self._take_whole_body(most)
        if not body:
            return False
        self.body_size, self._unread = len(body), False
        self._memory, self._head = memory, self.call
        if memory is not None:
            memory.take(len(body))
        self.call = self.call.with_body(body, memory)
        return True

    async def read_body(self, limit: int, memory: MemoryAccount) -> None:
        """Read the body into ``call``; ``memory`` accounts for it until ``close``.

        Raises LimitExceededError as soon as the body exceeds ``limit`` bytes, ThrottledError when memory for it is not
        available. Both are raised before reading if the length is announced. Raises InvalidRequestError when the client
        stops sending.
        """
        self._memory, self._head = memory, self.call
        announced = self.call.get_header("content-length").lstrip("0")  # int refuses thousands of digits
        if announced.isdigit():
            if int(announced) > limit:
                raise _make_size_error(limit)
            memory.check(int(announced))
        body, more = await self._chunk(limit, memory)
        if more:
            whole = io.BytesIO()
            whole.write(body)
            while more:
                body, more = await self._chunk(limit, memory)
                whole.write(body)
            body = whole.getvalue()
        self._unread = False
        if body:
            self.call = self.call.with_body(body, memory)

    async def _chunk(self, limit: int, memory: MemoryAccount) -> tuple[bytes, bool]:
        """Read the next part of the body. The flag is True if more follows."""
        message = await self._receive_message()
        chunk: bytes = message.get("body", b"")
        if self.body_size + len(chunk) > limit:
            raise _make_size_error(limit)
        memory.take(len(chunk))
        self.body_size += len(chunk)
        return chunk, message.get("more_body", False)

    def run(self, work: Callable[[], T]) -> T:
        """Call the function in a thread; the memory account of the body stays open until it returns."""
        return work() if self._memory is None else self._memory.run(work)

    def close(self) -> None:
        """Drop the body and release its memory after the answer."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self.call = self._head

    async def drop_rest(self, most: int) -> None:
        """Read and discard the rest of a refused body, at most ``most`` bytes.

        A client that is still sending would take a closed connection for a broken one and never see the refusal.
        """
        if not self.is_body_unread:
            return
        dropped, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(DROP_SECONDS):
                while more and dropped <= most:
                    message = await self.receive()
                    more = message["type"] == "http.request" and message.get("more_body", False)
                    dropped += len(message.get("body", b""))

    async def _receive_message(self) -> Message:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self.receive()
        except TimeoutError as error:
            raise InvalidRequestError(f"no part of the body arrived for {BODY_SECONDS} seconds", "body") from error
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message

    async def wait_for_disconnect(self) -> None:
        """Return when the client has disconnected. Call only after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def build_reply(self, answer: Answer) -> Reply:
        """Build the complete answer; a HEAD request gets only the headers."""
        headers = _encode_headers(answer.content_type, answer.headers)
        if answer.status not in _WITHOUT_BODY:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        if self.is_body_unread:
            headers.append((b"connection", b"close"))
        self.status = answer.status
        if not answer.headers or not any(name == b"x-request-id" for name, _ in headers):
            headers.append((b"x-request-id", self.request_id.encode()))
        return Reply(answer.status, headers, b"" if self.call.method == "HEAD" else answer.body, self._send)

    async def reply(self, answer: Answer) -> None:
        """Send a complete answer."""
        await self.build_reply(answer)

    async def begin(self, content_type: str, headers: Sequence[tuple[str, str]]) -> None:
        """Begin an answer of unknown length; ``send_part`` and ``end`` follow."""
        self.status = 200
        sent = _encode_headers(content_type, headers)
        if not any(name == b"x-request-id" for name, _ in sent):
            sent.append((b"x-request-id", self.request_id.encode()))
        await self._send({"type": "http.response.start", "status": 200, "headers": sent})

    async def send_part(self, chunk: bytes, patience: float, reader: str = "client") -> None:
        """Send a part of the answer; a HEAD request gets only the headers.

        Raises QueryTimeoutError when the reader reads nothing for ``patience`` seconds.
        """
        body = b"" if self.call.method == "HEAD" else chunk
        try:
            async with asyncio.timeout(patience):
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError as error:
            raise QueryTimeoutError(f"the {reader} read nothing for {patience:g} seconds") from error

    async def end(self) -> None:
        """End the answer."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def make_request_id() -> str:
    """Random UUID in capitals, as the vendors write theirs. It identifies a request and is not secret."""
    text = f"{_RANDOM.getrandbits(128) & _NOT_VERSION | _VERSION_4:032X}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _encode_headers(content_type: str, headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    encoded = [(b"content-type", content_type.encode("latin-1"))]
    for name, value in headers:
        encoded.append((name.lower().encode("latin-1"), value.encode("latin-1", "replace")))
    return encoded


def report(request_id: str, error: JobmeterError) -> None:
    """Log an error that the operator has to fix: a failing store or a wrong configuration."""
    if isinstance(error, UnavailableError):
        _log.warning("request %s: %s", request_id, error.message)
    elif isinstance(error, ConfigurationError | DamagedDataError):
        _log.error("request %s: %s", request_id, error.message)


def decode_body(call: Call, limit: int) -> bytes:
    """Return the body after decoding ``Content-Encoding`` gzip or none, in steps that are each accounted for.

    Raises InvalidRequestError naming ``Content-Encoding`` for another encoding or a damaged body, LimitExceededError
    when the result would exceed ``limit`` bytes, ThrottledError when memory is not available.
    """
    encoding = call.get_header("content-encoding").strip().lower()
    if encoding in {"", "identity"}:
        return call.body
    if encoding not in {"gzip", "x-gzip"}:
        raise InvalidRequestError(f"Content-Encoding {encoding!r} is not supported; gzip is", "Content-Encoding")
    try:
        return _gunzip(call, limit)
    except zlib.error as error:
        raise InvalidRequestError(
            "the body is not valid gzip, though Content-Encoding says gzip", "Content-Encoding"
        ) from error


def _gunzip(call: Call, limit: int) -> bytes:
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    whole = io.BytesIO()
    for at in range(0, len(call.body), STEP_BYTES):
        packed = call.body[at : at + STEP_BYTES]
        while packed and not unzip.eof:
            piece = unzip.decompress(packed, STEP_BYTES)
            call.take(len(piece))
            if whole.tell() + len(piece) > limit:
                raise _make_size_error(limit)
            whole.write(piece)
            packed = unzip.unconsumed_tail
        if unzip.eof and (unzip.unused_data or at + STEP_BYTES < len(call.body)):
            raise InvalidRequestError("the gzip body has extra bytes after its end", "Content-Encoding")
    if not unzip.eof:
        raise InvalidRequestError("the gzip body is truncated", "Content-Encoding")
    return whole.getvalue()


def _make_size_error(limit: int) -> LimitExceededError:
    return LimitExceededError(f"the body is larger than {limit} bytes", "body")


def _call(scope: AsgiScope) -> Call:
    client = scope.get("client") or ("", 0)
    headers = tuple([(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]])
    return Call(
        scope["method"],
        _path(scope["raw_path"].decode("latin-1")),
        scope["query_string"].decode("latin-1"),
        headers,
        scheme=scope.get("scheme", "http"),
        client=client[0],
        **scope.get("extensions", _NO_EXTENSIONS).get("jobmeter.call", _NO_EXTENSIONS),
    )


def _path(target: str) -> str:
    # Some servers pass on an absolute-form target unchanged, and some leave the query in raw_path.
    target = target.partition("?")[0]
    if not target.startswith("/") and target.lower().startswith(("http://", "https://")):
        _authority, slash, rest = target.partition("://")[2].partition("/")
        return slash + rest if slash else "/"
    return target
