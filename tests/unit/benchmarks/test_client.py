"""Tests of the benchmark's client: closed loops over some connections, each response whole before the next request."""

import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from benchmarks.client import Connection, Post, RefusedError, Request, Response, answer, drive

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\n10\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc10"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(("whole", "body"), [(CHUNKED, b"abc10"), (SIZED, b"abc10"), (EMPTY, b"")])
@pytest.mark.parametrize("piece", [1, 7, 1_000])
def test_a_response_is_complete_when_its_last_byte_arrived(whole, body, piece):
    response = Response()
    pieces = [whole[at : at + piece] for at in range(0, len(whole), piece)]
    assert [response.feed(one) for one in pieces] == [False] * (len(pieces) - 1) + [True]
    assert response.body() == body


def test_a_refusal_names_its_status_and_how_long_to_wait():
    response = Response()
    assert response.feed(b"HTTP/1.1 503 No\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nlate")
    with pytest.raises(RefusedError, match="503: b'late'") as refused:
        response.check()
    assert (refused.value.status, refused.value.wait) == (503, 3.0)


def test_a_closed_connection_is_an_error():
    with pytest.raises(ConnectionError):
        Response().feed(b"")


class Site(BaseHTTPRequestHandler):
    """Web server that records requests and bodies, and refuses /no."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    asked: ClassVar[list[tuple[str, int]]]

    def do_GET(self):
        size = len(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        self.asked.append((self.path, size))
        self.send_response(503 if self.path == "/no" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_POST = do_GET  # noqa: N815 - the name is the library's

    def log_message(self, *args):
        pass


@pytest.fixture
def site():
    class Own(Site):
        asked: ClassVar[list[tuple[str, int]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], Own.asked
        server.shutdown()
        thread.join()


def test_every_message_of_each_lane_is_sent_once_and_in_its_order(site):
    port, asked = site
    lanes = [[f"/{lane}/{number}" for number in range(20)] for lane in range(4)]
    driven = drive(port, [(Request(port, path).encode() for path in lane) for lane in lanes])
    assert len(driven.times) == 80
    assert driven.latency.count == 80
    for lane, paths in enumerate(lanes):
        assert [path for path, _ in asked if path.startswith(f"/{lane}/")] == paths


def test_lanes_can_share_the_messages(site):
    port, asked = site
    messages = (Request(port, f"/{number}").encode() for number in range(50))
    assert len(drive(port, [messages] * 3).times) == 50
    assert {path for path, _ in asked} == {f"/{number}" for number in range(50)}


def test_a_loop_ends_with_its_time_but_not_before_three(site):
    port, _ = site
    assert len(drive(port, [itertools.repeat(Request(port, "/").encode())], 1e-9).times) == 3


def test_a_body_larger_than_the_socket_takes_arrives_whole(site):
    port, asked = site
    message = Post(port, "/in", {}).encode(bytes(20_000_000))
    drive(port, [iter([message]), iter([message])])
    assert asked == [("/in", 20_000_000)] * 2


def test_a_refusal_does_not_count_as_an_answer(site):
    port, _ = site
    with pytest.raises(RefusedError, match="503"):
        drive(port, [itertools.repeat(Request(port, "/no").encode())], 1)
    with pytest.raises(RefusedError, match="503"):
        answer(Request(port, "/no"))
    with Connection(port) as connection:
        assert connection.ask(Request(port, "/yes").encode()) == b"ok"
