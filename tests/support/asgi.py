"""Calls an ASGI application without a socket, in the way of the HTTP server."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobmeter.server.exchange import WHOLE_BODY
from tests.support.waiting import never


class HangupError(Exception):
    """Signals that the client closes its connection before the end of the answer."""


@dataclass(frozen=True)
class Reply:
    """Answer of the application: header names in lower case, and the body in the chunks that were sent."""

    status: int
    headers: Mapping[str, str]
    chunks: Sequence[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)


def _take_whole_body(waiting: list[dict[str, Any]], most: int) -> bytes | None:
    return waiting.pop()["body"] if waiting and len(waiting[0]["body"]) <= most else None


def call(
    application: Any,
    method: str,
    target: str,
    body: bytes | Sequence[bytes] = b"",
    headers: Mapping[str, str] | None = None,
    gone_after: float | None = None,
) -> Reply:
    """Send one request and return the answer. The client closes its connection after ``gone_after`` seconds."""
    return asyncio.run(send(application, method, target, body, headers, gone_after))


async def send(
    application: Any,
    method: str,
    target: str,
    body: bytes | Sequence[bytes] = b"",
    headers: Mapping[str, str] | None = None,
    gone_after: float | None = None,
    take: Callable[[bytes], Awaitable[object]] | None = None,
) -> Reply:
    """Call the application and return its answer. A body in one piece arrives together with the headers.

    ``take`` receives each part of the answer, and the client reads on after it returns. The client closes its
    connection if ``take`` raises ``HangupError``.
    """
    path, _, query = target.partition("?")
    named = {name.lower() for name in headers or {}}
    if body and "content-length" not in named:
        headers = {**(headers or {}), "Transfer-Encoding": "chunked"}
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in {"Host": "127.0.0.1:8400", **(headers or {})}.items()
        ],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8400),
    }
    chunks = [body] if isinstance(body, bytes) else list(body)
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in chunks[:-1]]
    waiting.append({"type": "http.request", "body": chunks[-1] if chunks else b"", "more_body": False})
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()

    if isinstance(body, bytes):
        scope[WHOLE_BODY] = partial(_take_whole_body, waiting)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        if gone_after is None:
            await gone.wait()
        else:
            await never(gone_after)
        return {"type": "http.disconnect"}

    async def taken(message: dict[str, Any]) -> None:
        sent.append(message)
        if take is not None and message.get("body"):
            try:
                await take(message["body"])
            except HangupError:
                gone.set()

    await application(scope, receive, taken)
    if not sent:
        return Reply(0, {}, ())
    head = sent[0]
    names = {name.decode().lower(): value.decode("latin-1") for name, value in head["headers"]}
    return Reply(head["status"], names, [message.get("body", b"") for message in sent[1:]])
