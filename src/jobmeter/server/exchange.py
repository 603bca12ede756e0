"""One HTTP request and its answer on the raw ASGI interface: the call as it was sent, its body within bounds."""

import asyncio
import logging
import random
import zlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer
from jobmeter.errors import (
    ConfigurationError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    ThrottledError,
    UnavailableError,
)

_log = logging.getLogger("jobmeter.server")

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_NO_CONTENT = 204
_NOT_VERSION, _VERSION_4 = ~(0xF000 << 64 | 0xC000 << 48), 0x4000 << 64 | 0x8000 << 48
"""The bits of a UUID that say which kind it is (RFC 9562, sections 4.1 and 4.2), and what they are of a random one."""
AT_ONCE_BYTES = 16 * 1024
"""Body beyond which reading it takes longer than the event loop may be held."""
BODY_SECONDS = 30
"""Longest silence of a client that is sending a body."""
DROP_SECONDS = 5.0
"""How long what is left of a refused body is read and dropped."""


class ClientGoneError(Exception):
    """The client closed its connection before it had an answer: nobody is left to be answered."""


class Room:
    """How many bytes of bodies may be held at one time, by all requests together. Belongs to the event loop."""

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self, size: int) -> None:
        """Take some. Raises ThrottledError when so much is not left."""
        if size > self._free:
            raise ThrottledError("too many large bodies at one time, try again", 1000)
        self._free -= size

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self._free += size


class Answered(Protocol):
    """Something that is answered: ``status`` is known at the end."""

    @property
    def status(self) -> int:
        """As HTTP has it."""
        ...


class Exchange:
    """A request that is being answered.

    ``call`` has an empty body until ``read_body``. ``status`` is 0 until an answer began. Belongs to one task.
    """

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.request_id = new_request_id()
        self.status = 0
        self.held = 0
        self.call = _call(scope)
        # With HTTP/1 a body is announced; with HTTP/2 it may just come.
        self._bodyless = scope["method"] in {"GET", "HEAD"} and scope.get("http_version", "2").startswith("1")
        self._unread = True
        self._send = send

    async def read_body(self, limit: int, room: Room) -> None:
        """Read the body into ``call``, keeping account in ``held`` of what it takes of the room.

        Raises LimitExceededError as soon as it is larger than ``limit`` bytes, ThrottledError when there is no room,
        InvalidRequestError when the client stops sending.
        """
        announced = self.call.header("content-length")
        if self._bodyless and not announced and not self.call.header("transfer-encoding"):
            return
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self._next()
            chunk = message.get("body", b"")
            if self.held + len(chunk) > limit:
                raise _too_large(limit)
            room.take(len(chunk))
            self.held += len(chunk)
            chunks.append(chunk)
            more = message.get("more_body", False)
        self._unread = False
        if self.held:
            self.call = replace(self.call, body=b"".join(chunks))

    async def drop_rest(self, most: int) -> None:
        """Read what is left of a body that was refused, at most so many bytes of it, and keep none.

        A connection that is closed under a client that still sends is broken to it, and the refusal lost.
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
    def _one_at_a_time(self) -> bool:
        """True for HTTP/1, where a connection has one request after the other."""
        return str(self.scope.get("http_version", "1.1")).startswith("1")

    @property
    def _sending(self) -> bool:
        """True while the client may still be sending a body that nobody will read."""
        announced = self.call.header("content-length")
        return self._unread and (announced not in {"", "0"} or bool(self.call.header("transfer-encoding")))

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

    async def reply(self, answer: Answer) -> None:
        """Send a whole answer."""
        headers = _encoded(answer.content_type, answer.headers)
        if answer.status != _NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        if self._sending and self._one_at_a_time:
            headers.append((b"connection", b"close"))
        await self._start(answer.status, headers)
        await self._pass(answer.body, more=False)

    async def begin(self, content_type: str, headers: Sequence[tuple[str, str]]) -> None:
        """Begin an answer of unknown length; ``go_on`` and ``end`` follow."""
        await self._start(200, _encoded(content_type, headers))

    async def go_on(self, chunk: bytes) -> None:
        """Send a part of it."""
        await self._pass(chunk, more=True)

    async def end(self) -> None:
        """Send its end."""
        await self._pass(b"", more=False)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers, the request id among them."""
        self.status = status
        if not any(name == b"x-request-id" for name, _ in headers):
            headers.append((b"x-request-id", self.request_id.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _pass(self, chunk: bytes, *, more: bool) -> None:
        """Send a part of the body; a HEAD request gets the headers alone."""
        body = b"" if self.call.method == "HEAD" else chunk
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def new_request_id() -> str:
    """A random UUID in capitals, as the vendors write theirs. It tells requests apart and keeps no secret."""
    text = f"{random.getrandbits(128) & _NOT_VERSION | _VERSION_4:032X}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _encoded(content_type: str, headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", content_type.encode("latin-1")),
        *((name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers),
    ]


def report(request_id: str, error: JobmeterError) -> None:
    """Log what the operator has to know of: a store that does not work, a set-up that is wrong."""
    if isinstance(error, UnavailableError):
        _log.warning("request %s: %s", request_id, error.message)
    elif isinstance(error, ConfigurationError):
        _log.error("request %s: %s", request_id, error.message)


def decoded_body(call: Call, limit: int) -> bytes:
    """The body after ``Content-Encoding``: gzip or none.

    Raises InvalidRequestError naming ``Content-Encoding`` for another one or a damaged body, LimitExceededError when
    the result would be larger than ``limit`` bytes.
    """
    encoding = call.header("content-encoding").strip().lower()
    if encoding in {"", "identity"}:
        return call.body
    if encoding not in {"gzip", "x-gzip"}:
        raise InvalidRequestError(f"Content-Encoding {encoding!r} is not supported; gzip is", "Content-Encoding")
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        body = unzip.decompress(call.body, limit + 1)
    except zlib.error as error:
        raise InvalidRequestError("the body is not what Content-Encoding gzip says", "Content-Encoding") from error
    if len(body) > limit:
        raise _too_large(limit)
    if not unzip.eof or unzip.unused_data:
        raise InvalidRequestError("the gzip body is cut off or has something after its end", "Content-Encoding")
    return body


def _too_large(limit: int) -> LimitExceededError:
    return LimitExceededError(f"the body is larger than {limit} bytes", "body")


def _call(scope: AsgiScope) -> Call:
    client = scope.get("client") or ("", 0)
    return Call(
        method=scope["method"],
        raw_path=_path(scope["raw_path"].decode("latin-1")),
        query=scope["query_string"].decode("latin-1"),
        headers=tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]),
        scheme=scope.get("scheme", "http"),
        client=client[0],
        **scope.get("extensions", {}).get("jobmeter.call", {}),
    )


def _path(target: str) -> str:
    # Some servers hand an absolute-form target over whole, and some leave the query in raw_path.
    target = target.partition("?")[0]
    if target.lower().startswith(("http://", "https://")):
        _authority, slash, rest = target.partition("://")[2].partition("/")
        return slash + rest if slash else "/"
    return target
