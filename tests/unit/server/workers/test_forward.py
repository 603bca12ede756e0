"""Tests of calls that a worker forwards."""

import asyncio
from typing import Any

import pytest

from jobmeter.server.workers.forward import Forwarder
from jobmeter.server.workers.frames import PUSHED_BYTES, READ_BY_STORAGE, AnswerStart, BodyPart, Head, Want
from jobmeter.store.channel import Channel


class Storage(Channel):
    """Channel whose storage process requests the rest of a body, and then answers."""

    def __init__(self):
        self.sent: list[Any] = []
        super().__init__(READ_BY_STORAGE, self.sent.append, lambda: None)
        self.forwarder = Forwarder(self)

    async def drain(self):
        pass

    def send(self, message):
        self.sent.append(message)
        if isinstance(message, Head) and not message.is_pushed:
            self.forwarder.take(Want(message.call, authenticated=False))
        if isinstance(message, BodyPart):
            answer = AnswerStart(message.call, 200, [], b"", more=False, authenticated=False, is_over=True)
            self.forwarder.take(answer)


def scope(*headers):
    names = {"method": "POST", "raw_path": b"/", "query_string": b"", "scheme": "http", "client": None}
    return {**names, "headers": list(headers), "extensions": {}}


@pytest.mark.parametrize(
    ("length", "is_pushed"),
    [
        (b"5", True),
        (b"0" * 5000 + b"5", True),  # HTTP permits it, and the parser accepts it
        (b"%d" % PUSHED_BYTES, True),
        (b"%d" % (PUSHED_BYTES + 1), False),
        (b"18446744073709551615", False),
        (b"0", False),
        (b"00", False),
    ],
)
def test_a_small_body_follows_its_headers_without_a_request(length, is_pushed):
    storage, answered = Storage(), []

    async def receive():
        return {"type": "http.request", "body": b"hello", "more_body": False}

    async def send(message):
        answered.append(message["type"])

    async def main():
        await storage.forwarder(scope((b"content-length", length)), receive, send)

    asyncio.run(main())
    first, part = storage.sent
    assert first.is_pushed == is_pushed
    assert part == BodyPart(first.call, b"hello", more=False, is_cut=False)
    assert answered == ["http.response.start", "http.response.body"]
    assert not storage.forwarder.calls


def test_unfinished_calls_are_named_for_the_log():
    storage, named = Storage(), []

    async def receive():
        return {"type": "http.request", "body": b"hello", "more_body": False}

    async def send(_):
        named.append(storage.forwarder.describe_running())

    async def main():
        await storage.forwarder(scope((b"content-length", b"5")), receive, send)

    asyncio.run(main())
    assert set(named) == {"worker process, 1 forwarded requests"}
    assert storage.forwarder.describe_running() == "worker process, 0 forwarded requests"
