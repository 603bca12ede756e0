"""One HTTP request and its answer on the raw ASGI interface: the call as it was sent, its body within bounds."""

import asyncio
import io
import logging
import random
import zlib
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from types import MappingProxyType
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
_NO_EXTENSIONS: Mapping[str, Any] = MappingProxyType({})
_NOT_VERSION, _VERSION_4 = ~(0xF000 << 64 | 0xC000 << 48), 0x4000 << 64 | 0x8000 << 48
"""The bits of a UUID that say which kind it is (RFC 9562, sections 4.1 and 4.2), and what they are of a random one."""
MEMORY_BYTES = 16 * 1024
"""Size of a body beyond which reading it blocks the event loop for too long."""
STEP_BYTES = 256 * 1024
"""How much of a compressed body is read, and unpacked, at a time."""
BODY_SECONDS = 30
"""Longest silence of a client that is sending a body."""
DROP_SECONDS = 5.0
"""How long what is left of a refused body is read and dropped."""


class ClientGoneError(Exception):
    """The client closed its connection before it had an answer."""


class Reply:
    """A whole answer. Awaited, it is sent as ASGI has it; a server of our own takes it as it is, without a task."""

    __slots__ = ("_send", "body", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
        """``headers`` name the length of the body where there is one."""
        self.status = status
        self.headers = headers
        self.body = body
        self._send = send

    def __await__(self) -> Generator[Any, Any, None]:
        return self._sent().__await__()

    async def _sent(self) -> None:
        await self._send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await self._send({"type": "http.response.body", "body": self.body, "more_body": False})


class Exchange:
    """A request that is being answered.

    ``call`` has an empty body until ``read_body``, and again after ``close``. ``status`` is 0 until an answer began.
    ``body_size`` is the length of the body that was read. Belongs to one task.
    """

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send, proxies: TrustedProxies | None = None) -> None:
        """``proxies`` are those whose headers tell of the client; None: no proxy is trusted."""
        self.receive = receive
        self.request_id = new_request_id()
        self.status = 0
        self.body_size = 0
        call = _call(scope)
        self.call = self._head = proxies.received(call) if proxies else call
        self.has_body = self.call.header("content-length") not in _NONE or bool(self.call.header("transfer-encoding"))
        """True when the headers announce a body."""
        self._memory: MemoryAccount | None = None
        self._unread = True
        self._send = send

    async def read_body(self, limit: int, memory: MemoryAccount) -> None:
        """Read the body into ``call``; ``memory`` accounts for it until ``close``.

        Raises LimitExceededError as soon as it is larger than ``limit`` bytes, ThrottledError when the memory for it is
        not left: both before anything is read where the length is announced. InvalidRequestError when the client stops
        sending.
        """
        self._memory, self._head = memory, self.call
        announced = self.call.header("content-length")
        if announced.isdigit():
            if int(announced) > limit:
                raise _too_large(limit)
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
        """The next part of the body, and whether more follows."""
        message = await self._next()
        chunk: bytes = message.get("body", b"")
        if self.body_size + len(chunk) > limit:
            raise _too_large(limit)
        memory.take(len(chunk))
        self.body_size += len(chunk)
        return chunk, message.get("more_body", False)

    def during(self, work: Callable[[], T]) -> T:
        """Call the function in a thread; the memory of the body is accounted for until it returns."""
        return work() if self._memory is None else self._memory.during(work)

    def close(self) -> None:
        """Let go of the body and give its memory back: the request is answered, or will not be."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
            self.call = self._head

    async def drop_rest(self, most: int) -> None:
        """Read and discard the rest of a refused body, at most so many bytes.

        A client that is still sending would see a closed connection as broken, and lose the refusal.
        """
        if not self._sending:
            return
        dropped, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(DROP_SECONDS):
                while more and dropped <= most:
                    message = await self.receive()
                    more = message["type"] == "http.request" and message.get("more_body", False)
                    dropped += len(message.get("body", b""))

    @property
    def _sending(self) -> bool:
        """True while the client may still be sending a body that will not be read."""
        return self._unread and self.has_body

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self.receive()
        except TimeoutError as error:
            raise InvalidRequestError(f"nothing of the body came for {BODY_SECONDS} seconds", "body") from error
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message

    async def wait_for_disconnect(self) -> None:
        """Return when the client has gone. Only after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def whole(self, answer: Answer) -> Reply:
        """The whole answer, to be sent; a HEAD request gets the headers alone."""
        headers = _encoded(answer.content_type, answer.headers)
        if answer.status not in _WITHOUT_BODY:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        if self._sending:
            headers.append((b"connection", b"close"))
        self.status = answer.status
        if not answer.headers or not any(name == b"x-request-id" for name, _ in headers):
            headers.append((b"x-request-id", self.request_id.encode()))
        return Reply(answer.status, headers, b"" if self.call.method == "HEAD" else answer.body, self._send)

    async def reply(self, answer: Answer) -> None:
        """Send a whole answer."""
        await self.whole(answer)

    async def begin(self, content_type: str, headers: Sequence[tuple[str, str]]) -> None:
        """Begin an answer of unknown length; ``go_on`` and ``end`` follow."""
        self.status = 200
        sent = _encoded(content_type, headers)
        if not any(name == b"x-request-id" for name, _ in sent):
            sent.append((b"x-request-id", self.request_id.encode()))
        await self._send({"type": "http.response.start", "status": 200, "headers": sent})

    async def go_on(self, chunk: bytes) -> None:
        """Send a part of it; a HEAD request gets the headers alone."""
        body = b"" if self.call.method == "HEAD" else chunk
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        """Send its end."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def new_request_id() -> str:
    """A random UUID in capitals, as the vendors write theirs. It identifies a request and is no secret."""
    text = f"{_RANDOM.getrandbits(128) & _NOT_VERSION | _VERSION_4:032X}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _encoded(content_type: str, headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    encoded = [(b"content-type", content_type.encode("latin-1"))]
    for name, value in headers:
        encoded.append((name.lower().encode("latin-1"), value.encode("latin-1", "replace")))
    return encoded


def report(request_id: str, error: JobmeterError) -> None:
    """Log an error that the operator has to mend: a store that does not work, a wrong set-up."""
    if isinstance(error, UnavailableError):
        _log.warning("request %s: %s", request_id, error.message)
    elif isinstance(error, ConfigurationError | DamagedDataError):
        _log.error("request %s: %s", request_id, error.message)


def decoded_body(call: Call, limit: int) -> bytes:
    """The body after ``Content-Encoding``: gzip or none. It is unpacked in steps, each of them accounted for.

    Raises InvalidRequestError naming ``Content-Encoding`` for another one or a damaged body, LimitExceededError when
    the result would be larger than ``limit`` bytes, ThrottledError when its memory is not left.
    """
    encoding = call.header("content-encoding").strip().lower()
    if encoding in {"", "identity"}:
        return call.body
    if encoding not in {"gzip", "x-gzip"}:
        raise InvalidRequestError(f"Content-Encoding {encoding!r} is not supported; gzip is", "Content-Encoding")
    try:
        return _gunzipped(call, limit)
    except zlib.error as error:
        raise InvalidRequestError("the body is not what Content-Encoding gzip says", "Content-Encoding") from error


def _gunzipped(call: Call, limit: int) -> bytes:
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    whole = io.BytesIO()
    for at in range(0, len(call.body), STEP_BYTES):
        packed = call.body[at : at + STEP_BYTES]
        while packed and not unzip.eof:
            piece = unzip.decompress(packed, STEP_BYTES)
            call.take(len(piece))
            if whole.tell() + len(piece) > limit:
                raise _too_large(limit)
            whole.write(piece)
            packed = unzip.unconsumed_tail
        if unzip.eof and (unzip.unused_data or at + STEP_BYTES < len(call.body)):
            raise InvalidRequestError("the gzip body has something after its end", "Content-Encoding")
    if not unzip.eof:
        raise InvalidRequestError("the gzip body is cut off", "Content-Encoding")
    return whole.getvalue()


def _too_large(limit: int) -> LimitExceededError:
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
    # Some servers hand an absolute-form target over whole, and some leave the query in raw_path.
    target = target.partition("?")[0]
    if not target.startswith("/") and target.lower().startswith(("http://", "https://")):
        _authority, slash, rest = target.partition("://")[2].partition("/")
        return slash + rest if slash else "/"
    return target
