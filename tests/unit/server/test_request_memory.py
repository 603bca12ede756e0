"""What a request takes is free with its answer, and nothing is taken for whom the headers do not let in.

The collector of cycles is off: what only it would free stays, and is counted.
"""

import asyncio
import gc
import gzip
import struct
import tracemalloc
import zlib
from collections import Counter

import pytest
from tests.asgi import send
from tests.frames import FRAMES
from tests.serving import BASE, serving

MIB = 2**20
INGEST = f"{BASE}/ingest"


@pytest.fixture
def small(tmp_path):
    """A server whose requests may take 64 MiB together."""
    made = serving(tmp_path / "data", request_bytes=64 * MIB)
    yield made
    made.application.close()


@pytest.fixture
def uncollected():
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


class Sender:
    """Sends a body whose parts are made when they are asked for; ``asked`` counts them."""

    def __init__(self, path, body, headers, parts=1):
        self.asked = 0
        self.status = 0
        self._parts = [len(body) * at // parts for at in range(parts + 1)]
        self._body = memoryview(body)
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"content-length", b"%d" % len(body)), *((k.lower().encode(), v.encode()) for k, v in headers)],
            "client": ("127.0.0.1", 1),
        }

    async def receive(self):
        at = self.asked
        self.asked += 1
        if at + 1 >= len(self._parts):
            await asyncio.Event().wait()  # the client stays
        chunk = bytes(self._body[self._parts[at] : self._parts[at + 1]])
        return {"type": "http.request", "body": chunk, "more_body": at + 2 < len(self._parts)}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.asked_at_answer = self.asked


def _key(server):
    return ("Authorization", f"Bearer {server.admin.token}")


def _end_threads(server):
    """An answer may be sent a moment before the thread that made it lets go."""
    for lane in server.application.services.lanes.all():
        lane.close()


def _frame(payload, kind=1, codec=1, size=None):
    packed = zlib.compress(payload) if codec else payload
    head = struct.pack("<2sBBB3sIII", b"JM", 1, kind, codec, bytes(3), len(packed), size or len(payload), zlib.crc32(packed))
    return head + packed


def _fat_frame(number, bad=b""):
    """Series of 32 long labels; the last one has a text that is not UTF-8."""

    def text(value):
        return struct.pack("<H", len(value)) + value

    descriptors = []
    for at in range(400):
        labels = b"".join(text(b"label%02d" % one) + text(b"%03d%05d" % (number, at) * 30) for one in range(32))
        one = text(b"external.fat") + text(b"") * 7 + labels
        descriptors.append(struct.pack("<I", len(one)) + one)
    last = text(b"\xff") + text(b"") * 7
    descriptors.append(struct.pack("<I", len(last)) + last)
    return _frame(struct.pack("<II", 401, 0) + b"".join(descriptors) + bytes(4 * 401), codec=0)


REFUSED = {
    "a stranger's frames": (INGEST, bytes(8 * MIB), [("Content-Type", FRAMES)], False, 401),
    "a stranger's points": ("/api/put", bytes(8 * MIB), [], False, 401),
    "a wrong token": (INGEST, bytes(8 * MIB), [("Authorization", "Bearer jm_x")], False, 401),
    "no frames": (INGEST, bytes(8 * MIB), [("Content-Type", FRAMES)], True, 400),
    "no such type": (INGEST, bytes(8 * MIB), [], True, 400),
    "no JSON": (f"{BASE}/jobs", b"[" + b" " * 8 * MIB, [], True, 400),
    "a bomb": (f"{BASE}/jobs", gzip.compress(bytes(100 * MIB)), [("Content-Encoding", "gzip")], True, 429),
    "a frame of zeros": (INGEST, _frame(bytes(16 * MIB)), [("Content-Type", FRAMES)], True, 400),
    "no points": ("/api/put", b"[" + b" " * 8 * MIB, [], True, 400),
    "no snappy": ("/api/v1/write", bytes(8 * MIB) + b"x", [], True, 400),
    "no protobuf": ("/v1/metrics", b"\xff" * 3 * MIB, [("Content-Type", "application/x-protobuf")], True, 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_body_is_free_with_its_answer(small, uncollected, name):
    path, body, headers, known, status = REFUSED[name]
    headers = [*headers, _key(small)] if known else headers

    async def several(count):
        found = []
        for _ in range(count):
            one = Sender(path, body, headers, parts=8)
            await small.application(one.scope, one.receive, one.send)
            found.append(one.status)
        return found

    assert set(asyncio.run(several(2))) == {status}
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(several(4))
    _end_threads(small)
    assert tracemalloc.get_traced_memory()[0] - before < MIB
    assert small.application.services.memory.in_use == 0


def test_lists_of_series_that_are_refused_are_free_with_their_answer(small, uncollected):
    async def several(numbers):
        for number in numbers:
            one = Sender(INGEST, _fat_frame(number), [("Content-Type", FRAMES), _key(small)])
            await small.application(one.scope, one.receive, one.send)
            assert one.status == 400

    asyncio.run(several([1]))
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(several(range(2, 8)))
    _end_threads(small)
    assert tracemalloc.get_traced_memory()[0] - before < 2 * MIB
    assert small.application.services.memory.in_use == 0
