"""Calls of a worker: forwarded to the storage process as they arrive, and answered with its messages."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from jobmeter.server.exchange import AsgiScope, Receive, Reply, Send
from jobmeter.server.workers.frames import (
    PIECE_BYTES,
    PUSHED_BYTES,
    AnswerStart,
    BodyPart,
    ClientGone,
    End,
    Head,
    Part,
    Taken,
    Want,
)
from jobmeter.store.channel import Channel

Answering = Want | AnswerStart | Part | End


class _ForwardedCall:
    """Call that waits for messages of the storage process."""

    __slots__ = ("messages", "reading")

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Answering] = asyncio.Queue()
        self.reading: asyncio.Task[None] | None = None
        """Task that reads the next part of the body, or waits for the disconnect."""


class Forwarder:
    """ASGI application that forwards every call to the storage process, unless the worker can answer it."""

    def __init__(
        self,
        channel: Channel,
        answer: Callable[[AsgiScope, Receive, Send], Reply | Awaitable[Reply | Receive] | None] = lambda *_: None,
    ) -> None:
        """``answer`` returns the worker's own answer, or None for a call to forward.

        An awaitable gives the answer later, or the function that receives the body of a call to forward.
        """
        self.channel = channel
        self._answer = answer
        self._numbers = count()
        self.calls: dict[int, _ForwardedCall] = {}
        """Unfinished calls by number."""

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        answer = self._answer(scope, receive, send)
        if answer is None:
            return self._forward(scope, receive, send)
        return answer if isinstance(answer, Reply) else self._answer_later(answer, scope, send)

    def describe_running(self) -> str:
        """Describe the unfinished calls for the log."""
        return f"worker process, {len(self.calls)} forwarded requests"

    def take(self, message: Answering) -> None:
        """Take a message of the storage process. A message for a call that has ended is dropped."""
        call = self.calls.get(message.call)
        if call is not None:
            call.messages.put_nowait(message)

    async def _answer_later(self, answer: Awaitable[Reply | Receive], scope: AsgiScope, send: Send) -> None:
        found = await answer
        await (found if isinstance(found, Reply) else self._forward(scope, found, send))

    async def _forward(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self.channel.drain()
        number, call = next(self._numbers), _ForwardedCall()
        self.calls[number] = call
        is_over = False
        try:
            is_pushed = _is_pushed(scope)
            self.channel.send(_head(number, scope, is_pushed=is_pushed))
            if is_pushed:
                self._read(number, call, receive)
            while not is_over:
                message = await call.messages.get()
                if isinstance(message, Want | AnswerStart) and message.authenticated:
                    scope["extensions"]["jobmeter.call"]["authenticated"]()
                if isinstance(message, Want):
                    self._read(number, call, receive)
                elif isinstance(message, End):
                    is_over = True
                else:
                    is_over = await self._send(number, message, send)
        finally:
            del self.calls[number]
            if not is_over:
                self.channel.send(ClientGone(number))
            if call.reading is not None:
                call.reading.cancel()

    async def _send(self, number: int, message: AnswerStart | Part, send: Send) -> bool:
        """Send a part of the answer. True if the call is over."""
        is_over = False
        if isinstance(message, AnswerStart):
            await send({"type": "http.response.start", "status": message.status, "headers": message.headers})
            is_over = message.is_over
        await send({"type": "http.response.body", "body": message.body, "more_body": message.more})
        if not is_over:
            self.channel.send(Taken(number, len(message.body)))
        return is_over

    def _read(self, number: int, call: _ForwardedCall, receive: Receive) -> None:
        call.reading = asyncio.get_running_loop().create_task(self._read_part(number, call, receive))

    async def _read_part(self, number: int, call: _ForwardedCall, receive: Receive) -> None:
        message = await receive()
        if message["type"] != "http.request":
            self.channel.send(ClientGone(number))
            call.messages.put_nowait(End(number))
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for at in range(0, max(len(body), 1), PIECE_BYTES):
            is_cut = at + PIECE_BYTES < len(body)
            await self.channel.drain()
            self.channel.send(BodyPart(number, body[at : at + PIECE_BYTES], more or is_cut, is_cut))


def _is_pushed(scope: AsgiScope) -> bool:
    """True if a small body follows its headers without waiting for a ``100 Continue`` (``Expect``)."""
    size = b""
    for name, value in scope["headers"]:
        if name == b"content-length" and not size:
            size = value.lstrip(b"0")  # int refuses thousands of digits
        elif name == b"expect":
            return False
    return size.isdigit() and int(size) <= PUSHED_BYTES


def _head(number: int, scope: AsgiScope, *, is_pushed: bool) -> Head:
    return Head(
        number,
        scope["method"],
        scope["raw_path"],
        scope["query_string"],
        scope["headers"],
        scope["scheme"],
        scope["client"],
        is_pushed,
    )
