"""Tests of request memory: the answer frees it, and a request refused by its headers takes none.

The garbage collector is off: memory that only it would free stays allocated, and is counted.
"""

import asyncio
import gc
import gzip
import hashlib
import json
import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from tests.support.frames import FRAMES
from tests.support.serving import BASE, serving

from jobmeter.access.call import Call
from jobmeter.access.memory import MemoryBudget, drop_frames
from jobmeter.access.signatures.acs3 import build_canonical_request, sign
from jobmeter.errors import LimitExceededError, ThrottledError
from jobmeter.model.time import format_iso

MIB = 2**20
INGEST = f"{BASE}/ingest"


@pytest.fixture
def small(tmp_path):
    """Yield a server whose requests together may take 64 MiB."""
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
    """Client that makes the parts of a body on demand; ``asked`` counts them."""

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
            "headers": [
                (b"content-length", b"%d" % len(body)),
                *((k.lower().encode(), v.encode()) for k, v in headers),
            ],
            "client": ("127.0.0.1", 1),
        }

    async def receive(self):
        at = self.asked
        self.asked += 1
        if at + 1 >= len(self._parts):
            await asyncio.Event().wait()  # the client stays connected
        chunk = bytes(self._body[self._parts[at] : self._parts[at + 1]])
        return {"type": "http.request", "body": chunk, "more_body": at + 2 < len(self._parts)}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.asked_at_answer = self.asked


def _key(server):
    return ("Authorization", f"Bearer {server.admin.token}")


def _end_threads(server):
    """Wait for the threads, because an answer may be sent a moment before its thread releases its memory."""
    for lane in server.application.services.lanes.list_lanes():
        lane.close()


def _frame(payload, kind=1, codec=1, size=None):
    packed = zlib.compress(payload) if codec else payload
    head = struct.pack(
        "<2sBBB3sIII", b"JM", 1, kind, codec, bytes(3), len(packed), size or len(payload), zlib.crc32(packed)
    )
    return head + packed


def _fat_frame(number, bad=b""):
    """Return a frame with series of 32 long labels; the last series has a text that is not UTF-8."""

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
    path, body, headers, authenticated, status = REFUSED[name]
    headers = [*headers, _key(small)] if authenticated else headers

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


def _send(server, path, body, headers=(), parts=1):
    one = Sender(path, body, headers, parts)
    asyncio.run(server.application(one.scope, one.receive, one.send))
    return one


def _reader(server):
    return [("Authorization", f"Bearer {server.key('reader').token}")]


NOT_ADMITTED: dict[str, Any] = {
    "no key": lambda server: (INGEST, [], 401),
    "no key, a dialect": lambda server: ("/api/put", [], 401),
    "no key, remote write": lambda server: ("/api/v1/write", [], 401),
    "no key, OTLP": ("/v1/metrics", [], 401),
    "no key, Huawei": ("/v2/default/training-job-searches", [], 401),
    "no key, Alibaba": ("/api/v1/jobs", [], 400),
    "another's token": (INGEST, [("Authorization", "Bearer jm_x")], 401),
    "a reader's token": lambda server: (INGEST, _reader(server), 403),
    "a reader's token, a dialect": lambda server: ("/api/put", _reader(server), 403),
    "too large": lambda server: (INGEST, [_key(server)], 413),
    "nowhere": ("/nowhere", [], 404),
    "what takes no body": ("/metrics", [], 405),
}


@pytest.mark.parametrize("name", NOT_ADMITTED)
def test_a_body_is_not_read_before_its_headers_are_believed(small, name):
    case = NOT_ADMITTED[name]
    path, headers, status = case(small) if callable(case) else case
    one = _send(small, path, bytes(65 * MIB if name == "too large" else MIB), headers)
    assert (one.status, one.asked_at_answer) == (status, 0)


TIGHT = {
    "frames": (INGEST, _frame(bytes(64)), [("Content-Type", FRAMES)]),
    "records": (f"{BASE}/jobs", b'{"job_id":"a"}', []),
    "share": (f"{BASE}/jobs/a/share", b"{}", []),
    "keys": (f"{BASE}/keys", b'{"name":"n","role":"reader"}', []),
    "points": ("/api/put", b'[{"metric":"m","timestamp":1,"value":1,"tags":{"host":"a"}}]', []),
    "an OpenTSDB query": ("/api/query", b'{"start":"1h-ago","queries":[]}', []),
    "remote write": ("/api/v1/write", b"\x40\x00" + bytes(60), [("Content-Encoding", "snappy")]),
    "OTLP": ("/v1/metrics", bytes(64), [("Content-Type", "application/x-protobuf")]),
    "OTLP as JSON": ("/v1/metrics", b'{"resourceMetrics":[{}]}', [("Content-Type", "application/json")]),
    "ModelArts": ("/v2/default/training-job-searches", b'{"filters":[]}', []),
    "PAI-DLC": ("/api/v1/jobs", b'{"DisplayName":"a"}', []),
}


@pytest.mark.parametrize("name", TIGHT)
def test_what_finds_no_memory_is_advised_to_try_again_in_its_own_words(small, name):
    path, body, headers = TIGHT[name]
    memory = small.application.services.memory
    memory.take(memory.size - len(body))  # the body itself still fits
    reply = small.raw("POST", path, body, {**dict(headers), **dict([_key(small)])})
    assert reply.status in {429, 503}, reply.body
    assert memory.refusals == 1
    assert int(reply.headers["retry-after"]) >= 1
    memory.give_back(memory.size - len(body))
    assert memory.in_use == 0


def _many(before, one, count, after):
    return before + b",".join([one] * count) + after


BOMBS = {
    "records": (f"{BASE}/jobs", _many(b"[", b'{"job_id":"a"}', 200_000, b"]"), "10000 records"),
    "records by kind": (f"{BASE}/jobs", _many(b'{"jobs":[', b'{"job_id":"a"}', 200_000, b"]}"), "10000 records"),
    "points": ("/api/put", _many(b"[", b"{}", 600_000, b"]"), "500000 points"),
    "lines": (f"{BASE}/jobs/a/logs", _many(b'{"lines":[', b'{"text":""}', 1_000_001, b"]}"), "1000000 lines"),
    "records in a frame": (INGEST, _frame(_many(b'{"jobs":[', b'{"job_id":"a"}', 200_000, b"]}"), 2), "10000 records"),
    "lines in a frame": (
        INGEST,
        _frame(_many(b'{"streams":[{"job":"a","lines":[', b'[1,""]', 1_000_001, b"]}]}"), 3),
        "1000000 lines",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_a_body_brings_is_counted_before_it_is_made(server, uncollected, name):
    path, plain, message = BOMBS[name]
    server.call("POST", "/jobs", {"job_id": "a"})
    frames = path == INGEST
    headers = {"Content-Type": FRAMES} if frames else {"Content-Encoding": "gzip"}
    body = plain if frames else gzip.compress(plain)
    size = 17 * MIB if frames else len(plain)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    reply = server.raw("POST", path, body, {**headers, **dict([_key(server)])})
    assert reply.status in {400, 413}
    assert message in reply.body.decode()
    assert tracemalloc.get_traced_memory()[1] - before < 3 * size + MIB
    assert server.application.services.memory.in_use == 0


def _jobs(count):
    return json.dumps(
        [{"job_id": f"job-{one}", "labels": {"a": "b"}, "replicas": ["w-0", "w-1"]} for one in range(count)]
    )


FULL = {
    "records": (f"{BASE}/jobs", _jobs(1_000).encode()),
    "bare records": (f"{BASE}/jobs", _many(b"[", b'{"job_id":"a"}', 2_000, b"]")),
    "empty points": ("/api/put?details", _many(b"[", b"{}", 20_000, b"]")),
    "points": (
        "/api/put?details",
        _many(b"[", b'{"metric":"m","timestamp":1,"value":1,"tags":{"host":"a","rack":"b"}}', 10_000, b"]"),
    ),
    "lines": (f"{BASE}/jobs/a/logs", _many(b'{"lines":[', b'{"text":""}', 20_000, b"]}")),
    "wide lines": (
        f"{BASE}/jobs/a/logs",
        _many(b'{"lines":[', b'{"text":"' + "\U0001f600 aaaaaaaaaaaaaaaaaaaa".encode() + b'"}', 20_000, b"]}"),
    ),
}


@pytest.mark.parametrize("name", FULL)
def test_no_more_memory_is_used_than_was_accounted_for(server, uncollected, name, monkeypatch):
    path, body = FULL[name]
    server.call("POST", "/jobs", {"job_id": "a"})
    most = []
    taking = MemoryBudget.take

    def take(self, size):
        taking(self, size)
        most.append(self.in_use)

    monkeypatch.setattr(MemoryBudget, "take", take)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    server.raw("POST", path, body, dict([_key(server)]))
    assert tracemalloc.get_traced_memory()[1] - before < max(most) + MIB


def _acs3(key, now_ms, body, secret=""):
    """Return the headers of a call signed by Alibaba's SDK: a header has the hash of the body."""
    headers = {
        "host": "h",
        "x-acs-action": "CreateJob",
        "x-acs-version": "2020-12-03",
        "x-acs-date": format_iso(now_ms),
        "x-acs-signature-nonce": secret or "n",
        "x-acs-content-sha256": hashlib.sha256(body).hexdigest(),
    }
    names = ";".join(sorted(headers))
    call = Call("POST", "/api/v1/jobs", "", tuple(headers.items()))
    request = build_canonical_request(call, names, headers["x-acs-content-sha256"])
    signature = sign("ACS3-HMAC-SHA256", request, secret or key.access_key_secret)
    text = f"ACS3-HMAC-SHA256 Credential={key.access_key_id},SignedHeaders={names},Signature={signature}"
    return [*headers.items(), ("authorization", text)]


def test_the_body_of_a_signature_of_headers_that_does_not_hold_is_not_read(small):
    body = b'{"DisplayName":"a"}'
    one = _send(small, "/api/v1/jobs", body, _acs3(small.admin, small.clock.now_ms(), body, secret="another"))
    assert (one.status, one.asked_at_answer) == (400, 0)
    one = _send(small, "/api/v1/jobs", body, _acs3(small.admin, small.clock.now_ms(), body))
    assert one.asked_at_answer > 0
    text = small.application.services.telemetry.render().decode()
    assert 'jobmeter_access_refused_total{reason="bad-signature"} 1.0' in text


def test_another_body_than_the_one_that_was_signed_is_refused(small):
    body = b'{"DisplayName":"a"}'
    one = _send(small, "/api/v1/jobs", b'{"DisplayName":"b"}', _acs3(small.admin, small.clock.now_ms(), body))
    assert one.asked_at_answer > 0
    text = small.application.services.telemetry.render().decode()
    assert 'jobmeter_access_refused_total{reason="bad-signature"} 1.0' in text


def test_who_sends_a_body_is_counted_once(tmp_path):
    server = serving(tmp_path / "data", rate_limits="recordJobs=1:2")
    statuses = [server.call("POST", "/jobs", {"job_id": "a"}).status for _ in range(3)]
    server.application.close()
    assert statuses == [200, 200, 429]


def test_many_frames_at_one_time_share_what_there_is(server, monkeypatch):
    """24 writers send a frame of 253 KB that decompresses to 255 MiB: writers without memory left get status 429."""
    frame = _frame(bytes(255 * MIB))
    assert len(frame) < 300_000
    memory = server.application.services.memory
    most = []
    taking = MemoryBudget.take

    def take(self, size):
        taking(self, size)
        most.append(self.in_use)

    monkeypatch.setattr(MemoryBudget, "take", take)

    async def together():
        senders = [Sender(INGEST, frame, [("Content-Type", FRAMES), _key(server)]) for _ in range(24)]
        await asyncio.gather(*(server.application(one.scope, one.receive, one.send) for one in senders))
        return [one.status for one in senders]

    statuses = asyncio.run(together())
    assert set(statuses) <= {400, 429}
    assert statuses.count(429) + statuses.count(400) == 24
    assert max(most) <= memory.size
    assert (memory.in_use, memory.refusals) == (0, statuses.count(429))


def test_memory_is_taken_for_as_long_as_a_thread_works_on_it():
    budget = MemoryBudget(100)
    account = budget.open_account()
    account.take(60)

    def work():
        account.close()  # the client has disconnected
        with pytest.raises(ThrottledError):
            budget.take(60)
        return "done"

    assert account.run(work) == "done"
    assert budget.in_use == 0


def test_what_never_fits_is_not_advised_to_try_again():
    with pytest.raises(LimitExceededError, match="for all requests together is 100"):
        MemoryBudget(100).open_account().take(101)


def test_an_exception_lets_go_of_the_frames_behind_it_too():
    def fail():
        try:
            {"b": 1}["a"]
        except KeyError as error:
            raise ValueError("b") from error

    with pytest.raises(ValueError, match="b") as caught:
        fail()
    chain = [caught.value, caught.value.__cause__]
    assert all(one is not None and one.__traceback__ is not None for one in chain)
    drop_frames(caught.value)
    assert all(one is not None and one.__traceback__ is None for one in chain)


def test_a_length_of_thousands_of_digits_is_a_number(small):
    body = b"[" + b" " * 100
    one = Sender(f"{BASE}/jobs", body, [_key(small)])
    one.scope["headers"][0] = (b"content-length", b"%05001d" % len(body))
    asyncio.run(small.application(one.scope, one.receive, one.send))
    assert one.status == 400
