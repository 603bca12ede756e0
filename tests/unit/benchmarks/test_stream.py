"""Tests of the stream: every contestant receives the samples that any contestant receives during its measurement."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest
from benchmarks import stream
from benchmarks.client import Post
from benchmarks.data import job_names
from benchmarks.native import NativeTemplate

from jobmeter.wire.native.decode import decode

SERIES = job_names("gpu.power", "job", 2, 8)
PARTS = [SERIES[:8], SERIES[8:]]


class Line:
    """Pipe of a stream. It names the places to stream to, and stops each stream after three requests."""

    def __init__(self, *places: int) -> None:
        self._places = [*places, None]
        self._polls = 0
        self.replies = list[float]()

    def recv(self) -> int | None:
        if self._polls:  # the message that ended the streaming
            self._polls = 0
            return None
        return self._places.pop(0)

    def poll(self, timeout: float) -> bool:
        self._polls += 1
        return self._polls > 3

    def send(self, rate: float) -> None:
        self.replies.append(rate)


@pytest.fixture
def received(monkeypatch):
    found: dict[int, list[bytes]] = {1: [], 2: [], 3: []}

    class Receiver:
        def __init__(self, port: int) -> None:
            self._port = port

        def ask(self, message: bytes) -> None:
            found[self._port].append(message.partition(b"\r\n\r\n")[2])

    monkeypatch.setattr(stream, "Connection", Receiver)
    return found


def test_everybody_stores_the_same(received):
    line = Line(1, 0, 2)
    targets = [stream.Target(Post(port, "/in", {}), NativeTemplate) for port in received]
    stream.serve(targets, PARTS, cast("Any", line))
    assert len(line.replies) == 4
    stored = [_samples(bodies) for bodies in received.values()]
    assert stored[0] == stored[1] == stored[2]
    assert {len(bodies) for bodies in received.values()} == {2 + 3 * 3}
    assert {series for series, _, _ in stored[0]} == set(range(16))
    assert all(stamp % 2 == 1 for _, stamp, _ in stored[0])


def _samples(bodies: list[bytes]) -> set[tuple[int, int, float]]:
    batches = [batch for body in bodies for batch in decode(body).batches]
    return {
        (int(one.replica[-1]) * 8 + int(one.device[-1]), stamp, value)
        for batch in batches
        for one, stamp, value in zip(batch.series, batch.time.tolist(), batch.value.tolist(), strict=True)
    }


class Gone(BaseHTTPRequestHandler):
    """Contestant that closes every connection."""

    def do_POST(self):
        self.close_connection = True

    def log_message(self, *args):
        pass


def test_a_stream_that_breaks_is_an_error(capfd):
    with ThreadingHTTPServer(("127.0.0.1", 0), Gone) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        where = Post(server.server_address[1], "/in", {})
        gone = SimpleNamespace(name="gone", written=lambda: where, template=NativeTemplate)
        with pytest.raises(RuntimeError, match="the stream of samples broke"):
            stream.Stream([cast("Any", gone)], SERIES, 2).__enter__()
        server.shutdown()
        thread.join()
    assert "ConnectionError" in capfd.readouterr().err
