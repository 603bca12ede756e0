"""Tests of requests to the local HTTP server: its header fields equal those that the standard library reads."""

import contextlib
import http.client
import io
import json
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.collect.local_http import LocalHandler, LocalServer

NAMES = st.text("ABCxyz019-_", min_size=1, max_size=12)
VALUES = st.text([chr(code) for code in range(32, 127)], max_size=30)


class Echo(LocalHandler):
    """Server that answers with the fields and the body of the request."""

    def respond(self):
        sent = (self.read_body() or b"").decode("latin-1")
        self.answer(200, "application/json", json.dumps([self.path, dict(self.fields), sent]).encode())


@pytest.fixture(scope="module")
def address():
    server = LocalServer(0, Echo, 8, "test")
    server.start()
    yield server.server_address
    server.stop()


def answers(address, data):
    """Send bytes, and return the status and the body of each answer until the server disconnects."""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = io.BytesIO()
        # A server that refuses a request leaves the rest unread: the connection may then end with a reset.
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(2**16):
                received.write(piece)
    received.seek(0)
    found = []
    while line := received.readline():
        fields = http.client.parse_headers(received)
        found.append((int(line.split()[1]), received.read(int(fields.get("Content-Length", "0")))))
    return found


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(NAMES.map(str.lower), VALUES, max_size=8), st.binary(max_size=20), st.integers(1, 3))
def test_the_fields_and_bodies_of_requests_in_a_row_arrive(address, fields, body, count):
    fields = {f"x-{name}": value for name, value in fields.items()} | {"content-length": str(len(body))}
    head = "".join(f"{name.title()}:  {value} \r\n" for name, value in fields.items()) + "\r\n"
    found = answers(address, (b"POST /p?q HTTP/1.1\r\n" + head.encode() + body) * count)
    theirs = http.client.parse_headers(io.BytesIO(head.encode()))
    expected = ["/p?q", {name.lower(): value.strip() for name, value in theirs.items()}, body.decode("latin-1")]
    assert [(status, json.loads(text)) for status, text in found] == [(200, expected)] * count


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        ("GET /\r\n", 400),
        ("GET / HTTP/2.0\r\n", 400),
        ("GET / x HTTP/1.1\r\n", 400),
        ("PUT / HTTP/1.1\r\n\r\n", 501),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nA: b\r\n", 400),
        ("GET / HTTP/1.1\r\nA: " + "x" * 2**16 + "\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\n" + "".join(f"A{at}: b\r\n" for at in range(101)) + "\r\n", 431),
        ("GET /" + "x" * 2**16 + " HTTP/1.1\r\n\r\n", 414),
    ],
)
def test_another_request_is_refused_and_ends_the_connection(address, request_head, status):
    found = answers(address, request_head.encode() + b"GET / HTTP/1.1\r\n\r\n")
    assert found[0][0] == status
    assert status == 501 or len(found) == 1


@pytest.mark.parametrize(
    ("version", "connection", "answered"),
    [
        ("1.1", "", 2),
        ("1.1", "Connection: Close\r\n", 1),
        ("1.0", "", 1),
        ("1.0", "Connection: keep-alive\r\n", 2),
    ],
)
def test_a_connection_lasts_for_the_requests_that_want_it(address, version, connection, answered):
    assert len(answers(address, f"GET / HTTP/{version}\r\n{connection}\r\n".encode() * 2)) == answered


def test_a_sender_that_waits_for_100_gets_it_before_the_answer(address):
    head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab"
    assert [status for status, _ in answers(address, head)] == [100, 200]
