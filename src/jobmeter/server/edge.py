"""The front of the server: a bare ASGI application that finds the door for each request and lets nothing escape.

A framework's router would refuse what vendors' SDKs send (a scheme in Host, ``%2F`` and ``//`` in the path), so doors
are asked in order with the path as it came.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from jobmeter.access.call import Call, check_parameters
from jobmeter.access.memory import MemoryBudget, drop_frames
from jobmeter.dialects.base import Answer
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.server.exchange import AsgiScope, ClientGoneError, Exchange, Receive, Send, report
from jobmeter.server.telemetry import Telemetry

_log = logging.getLogger("jobmeter.server")
_access = logging.getLogger("jobmeter.access")

WATCH_AFTER_SECONDS = 0.05
"""A request that takes longer is watched for a client that goes away."""
DROPPED = 2
"""How many times the largest body is read of one that was refused, and dropped."""

_NO_WORDS = Answer(500, b"internal error\n", content_type="text/plain; charset=utf-8")
"""The answer where the door cannot put a failure into words."""


class Visit(Protocol):
    """A request that a door took: who may send a body, how large it may be, and how it is answered."""

    @property
    def body_bytes(self) -> int:
        """Largest body, as sent. 0: no body is read."""
        ...

    def admit(self, exchange: Exchange) -> Awaitable[None]:
        """Check the credential that the headers name. Asked before a body is read, and not where none may come.

        May raise JobmeterError.
        """
        ...

    @property
    def at_once_bytes(self) -> int:
        """Largest body, as sent, with which ``at_once`` is tried."""
        ...

    def at_once(self, exchange: Exchange) -> Answer | Awaitable[Answer] | None:
        """The answer, where it takes a moment and nothing has to be waited for; else None, and ``serve`` is next.

        What may be awaited is begun and goes on by itself, whether or not the client stays: its answer comes later.
        Called on the event loop's thread, with the body read. May raise JobmeterError.
        """
        ...

    @property
    def serve(self) -> Callable[[Exchange], Awaitable[None]]:
        """Answer the request; the body was read. May raise JobmeterError before it began to answer."""
        ...


class Door(Protocol):
    """One way in: a part of the paths, with its own form of answers and errors."""

    @property
    def name(self) -> str:
        """The name in logs and in the server's own metrics."""
        ...

    def open(self, call: Call) -> Visit | None:
        """What answers the call (its body is not read yet); None when it is another door's. May raise JobmeterError."""
        ...

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """The error in this door's own form."""
        ...


class Edge:
    """The ASGI application. ``doors`` are asked in order; the last one takes everything.

    A request goes these steps: find its door; admit it by its headers; read its body, within ``memory``; answer it. A
    request without a body is not admitted by itself: the answer checks its credential. ``body_bytes`` is the largest
    body of any door.
    """

    def __init__(self, doors: Sequence[Door], telemetry: Telemetry, memory: MemoryBudget, body_bytes: int) -> None:
        self._doors = doors
        self._telemetry = telemetry
        self._memory = memory
        self._most_dropped = DROPPED * body_bytes

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; take part in the lifespan protocol; refuse WebSockets."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._exchange(Exchange(scope, receive, send))
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _exchange(self, exchange: Exchange) -> None:
        door, visit = self._find(exchange)
        with self._telemetry.request(door.name, exchange):
            try:
                if isinstance(visit, JobmeterError):
                    await _refuse(door, exchange, visit)
                else:
                    if exchange.has_body and visit.body_bytes:
                        await visit.admit(exchange)
                        await exchange.read_body(visit.body_bytes, self._memory.account())
                    await _answered(exchange, visit)
            except ClientGoneError:
                exchange.status = exchange.status or 499
            except JobmeterError as problem:
                drop_frames(problem)
                await _refuse(door, exchange, problem)
            except Exception as bug:  # noqa: BLE001 - a bug must not reach the client, nor cut it off without a word
                _log.exception("request %s failed: %s", exchange.request_id, exchange.call.raw_path)
                drop_frames(bug)
                await _refuse(door, exchange, JobmeterError("internal error"))
            finally:
                exchange.close()
        await exchange.drop_rest(self._most_dropped)
        _access.debug(
            "%s %s %s %d %s",
            exchange.call.client,
            exchange.call.method,
            exchange.call.raw_path,
            exchange.status,
            door.name,
        )

    def _find(self, exchange: Exchange) -> tuple[Door, Visit | JobmeterError]:
        try:
            check_parameters(exchange.call.query)
        except ValueError as error:
            # The door is that of the parameters that are read, and refuses the others in its own words.
            exchange.call = exchange.call.with_first_parameters()
            door, _ = self._open(exchange.call)
            return door, InvalidRequestError(f"the query cannot be read: {error}", "query")
        return self._open(exchange.call)

    def _open(self, call: Call) -> tuple[Door, Visit | JobmeterError]:
        for door in self._doors:
            try:
                visit = door.open(call)
            except JobmeterError as problem:
                return door, problem
            if visit is not None:
                return door, visit
        return self._doors[-1], NotFoundError(f"there is nothing at {call.raw_path[:200]}", "path")


async def _answered(exchange: Exchange, visit: Visit) -> None:
    answer = visit.at_once(exchange) if _is_small(exchange, visit) else None
    if answer is None:
        await _while_connected(exchange, visit.serve(exchange))
    else:
        await exchange.reply(answer if isinstance(answer, Answer) else await answer)


def _is_small(exchange: Exchange, visit: Visit) -> bool:
    """True where what was sent is read in a moment: little of it, and not compressed."""
    return exchange.body_size <= visit.at_once_bytes and not exchange.call.header("content-encoding")


async def _refuse(door: Door, exchange: Exchange, error: JobmeterError) -> None:
    if exchange.status:  # the answer began: all that is left is to cut it off
        raise error
    report(exchange.request_id, error)
    try:
        answer = door.refuse(exchange.call, exchange.request_id, error)
    except Exception:  # noqa: BLE001 - a refusal has no other door to go to
        _log.exception("request %s could not be refused in the words of %s", exchange.request_id, door.name)
        answer = _NO_WORDS
    await exchange.reply(answer)


async def _while_connected(exchange: Exchange, work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=WATCH_AFTER_SECONDS)
        if not done:
            watcher = asyncio.ensure_future(exchange.wait_for_disconnect())
            try:
                await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
            finally:
                watcher.cancel()
        if not task.done():
            raise ClientGoneError
        task.result()
    finally:
        task.cancel()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
