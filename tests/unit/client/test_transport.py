"""Tests of single requests: the key is sent, error answers become our errors, and a missing answer is reported."""

import json
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import MappingProxyType

import pytest
from tests.support import certificates

from jobmeter.client.transport import Transport
from jobmeter.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)


@pytest.fixture
def answering():
    """Run a server that gives the answer in ``next``, and records the request's headers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            listener.asked = dict(self.headers)
            status, body, headers = listener.next
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    class Listener(HTTPServer):
        next: tuple[int, bytes, dict[str, str]] = (200, b"", {})
        asked: Mapping[str, str] = MappingProxyType({})

    listener = Listener(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield listener
    listener.shutdown()
    listener.server_close()
    thread.join()


def ask(listener, key="", *, scheme="http", ca_file=None):
    transport = Transport(f"{scheme}://127.0.0.1:{listener.server_address[1]}/", key, ca_file=ca_file)
    try:
        return transport.request("GET", "/x")
    finally:
        transport.close()


def test_the_key_goes_along_and_the_answer_comes_back(answering):
    answering.next = (200, b"hello", {"X-One": "1"})
    answer = ask(answering, "t0")
    assert (answer.status, answer.body, answer.headers["x-one"]) == (200, b"hello", "1")
    assert answering.asked["Authorization"] == "Bearer t0"
    ask(answering)
    assert "Authorization" not in answering.asked


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", InvalidRequestError),
        (413, "limit_exceeded", LimitExceededError),
        (401, "unauthenticated", UnauthenticatedError),
        (403, "forbidden", ForbiddenError),
        (404, "not_found", NotFoundError),
        (409, "conflict", ConflictError),
        (429, "throttled", ThrottledError),
        (504, "timeout", QueryTimeoutError),
        (503, "unavailable", UnavailableError),
        (500, "internal", JobmeterError),
    ],
)
def test_a_refusal_becomes_the_error_that_it_was(answering, status, code, kind):
    body = {"error": {"code": code, "message": "because", "field": "step"}, "request_id": "A"}
    answering.next = (status, json.dumps(body).encode(), {"Retry-After": "7"})
    with pytest.raises(JobmeterError, match="because") as caught:
        ask(answering)
    assert type(caught.value) is kind
    if isinstance(caught.value, InvalidRequestError):
        assert caught.value.field == "step"
    if isinstance(caught.value, ThrottledError):
        assert caught.value.retry_after_ms == 7000


@pytest.mark.parametrize(("status", "body"), [(502, b"<html>bad gateway</html>"), (500, b""), (301, b"{}")])
def test_an_answer_that_is_not_ours_is_reported_with_its_status(answering, status, body):
    answering.next = (status, body, {"Location": "/elsewhere"})
    with pytest.raises(JobmeterError, match=str(status)):
        ask(answering)


def test_a_body_that_is_too_large_for_a_proxy_may_be_split(answering):
    answering.next = (413, b"<html>Request Entity Too Large</html>", {})
    with pytest.raises(LimitExceededError, match="413"):
        ask(answering)


def test_an_unreachable_server_is_reported():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError, match=f"no answer from http://127.0.0.1:{port}: connection refused: check"):
        Transport(f"http://127.0.0.1:{port}").request("GET", "/")


@pytest.mark.parametrize(("server", "timeout"), [("http://{}", 0.05), ("https://{}", 0.05)])
def test_a_server_that_says_nothing_is_reported_without_a_representation(server, timeout):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError) as caught:
            Transport(server.format(address), timeout=timeout).request("GET", "/")
    assert "timed out" in caught.value.message
    assert "Connection" not in caught.value.message


def test_a_certificate_that_is_not_trusted_is_reported_with_the_option(answering, tmp_path):
    made = certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    answering.socket = context.wrap_socket(answering.socket, server_side=True)
    with pytest.raises(UnavailableError, match=r"its certificate is not trusted \(.+\): name the .* --ca-file$"):
        ask(answering, scheme="https")
    assert ask(answering, scheme="https", ca_file=str(made.ca)).status == 200


def test_a_closed_connection_suggests_tls():
    def close(listener):
        with listener.accept()[0] as connection:
            connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(close, listener)
        with pytest.raises(UnavailableError, match="closed the connection without an answer: use https:// if"):
            Transport(f"http://127.0.0.1:{listener.getsockname()[1]}").request("GET", "/")


def test_a_server_without_tls_is_reported(answering):
    with pytest.raises(UnavailableError, match="does not speak TLS at this port: use http://"):
        ask(answering, scheme="https")
