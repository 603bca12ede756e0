"""Requests of a worker to the storage process whose results arrive as messages with the number of the request."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

import msgspec

from jobmeter.store.channel import Channel

T = TypeVar("T")


class Requests(Generic[T]):
    """Requests whose results have not arrived yet. Belongs to the event loop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[T]] = {}

    async def send(self, make_message: Callable[[int], msgspec.Struct]) -> T:
        """Send the message that is made for a new number, and return the result for this number."""
        number = next(self._numbers)
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[number] = result
        self._channel.send(make_message(number))
        try:
            return await result
        finally:
            del self._waiting[number]

    def take(self, number: int, result: T) -> None:
        """Take the result of a request; does nothing if nobody waits for the result."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
