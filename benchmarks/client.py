"""One client for all: whole requests on kept connections, timed from the first byte out to the last byte in."""

import contextlib
import http.client
import itertools
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Request:
    """A GET that a contestant is asked; anything but a 200 ends the run, so that an error cannot win."""

    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Its bytes."""
        return _head("GET", self.port, self.path, self.headers)


@dataclass(frozen=True)
class Post:
    """Where bodies go, and what is said with each."""

    port: int
    path: str
    headers: Mapping[str, str]

    def encode(self, body: bytes) -> bytes:
        """The bytes of one request with that body."""
        return _head("POST", self.port, self.path, {**self.headers, "Content-Length": str(len(body))}) + body


@dataclass(frozen=True)
class Latency:
    """Milliseconds over the requests of one round."""

    p50: float
    p99: float
    worst: float
    count: int


def summary(milliseconds: Sequence[float]) -> Latency:
    """The quantiles of at least one time."""
    times = sorted(milliseconds)
    return Latency(statistics.median(times), times[int(len(times) * 0.99)], times[-1], len(times))


class RefusedError(RuntimeError):
    """The answer was no 2xx. ``status`` says what it was, ``wait`` the seconds of its Retry-After, 0 without one."""

    def __init__(self, status: int, body: bytes, wait: float = 0.0) -> None:
        super().__init__(f"{status}: {body[:500]!r}")
        self.status = status
        self.wait = wait


class Connection:
    """A kept connection; one request after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._socket.close()

    def ask(self, message: bytes) -> bytes:
        """The body of the answer; RefusedError unless it is a 2xx."""
        self._socket.sendall(message)
        body, self._rest = _read(self._socket, self._rest)
        return body


def answer(request: Request) -> bytes:
    """The body of one answer on a connection of its own."""
    with Connection(request.port) as connection:
        return connection.ask(request.encode())


def latency(requests: Sequence[Request], seconds: float) -> Latency:
    """One connection, one request after the other, the list from its start again and again; at least three."""
    messages, times = itertools.cycle([one.encode() for one in requests]), list[float]()
    with Connection(requests[0].port) as connection:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            message = next(messages)
            begin = time.perf_counter()
            connection.ask(message)
            times.append((time.perf_counter() - begin) * 1000)
    return summary(times)


def post(where: Post, body: bytes) -> bytes:
    """Send one body on a connection of its own and wait for a 2xx."""
    with Connection(where.port) as connection:
        return connection.ask(where.encode(body))


def post_all(where: Post, lanes: Sequence[Sequence[bytes]], seconds: float | None = None) -> tuple[int, float]:
    """Send each lane's bodies one after the other on a kept connection of its own, all lanes at once.

    Gives how many bodies were acknowledged and how long that took. ``seconds``: no body is begun later than that.
    """
    # A connection that is refused must not leave the others waiting.
    barrier = threading.Barrier(len(lanes) + 1, timeout=60)
    messages = [[where.encode(body) for body in lane] for lane in lanes]

    def run(lane: Sequence[bytes]) -> int:
        with Connection(where.port) as connection:
            barrier.wait()
            end = time.perf_counter() + (seconds or 1e9)
            return sum(1 for message in lane if time.perf_counter() < end and connection.ask(message) is not None)

    with ThreadPoolExecutor(len(lanes)) as pool:
        futures = [pool.submit(run, lane) for lane in messages]
        barrier.wait()
        begin = time.perf_counter()
        sent = sum(future.result() for future in futures)
        return sent, time.perf_counter() - begin


def drain(request: Request) -> Iterator[bytes]:
    """The pieces of a long answer as they come, never all of them at once; RefusedError unless it is a 200."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", request.port, timeout=120)) as connection:
        connection.request("GET", request.path, headers=dict(request.headers))
        response = connection.getresponse()
        if response.status != 200:
            raise RefusedError(response.status, response.read(1000))
        while piece := response.read1(1 << 18):
            yield piece


def folder() -> Path:
    """A fresh folder for one contestant."""
    return Path(tempfile.mkdtemp(prefix="jobmeter-bench-"))


def _head(method: str, port: int, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _read(connection: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        body, rest = _chunked(connection, rest)
    elif status == 204:
        body = b""
    else:
        size = int(lower.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(rest) < size:
            rest += _more(connection)
        body, rest = rest[:size], rest[size:]
    if not 200 <= status < 300:
        wait = lower.partition(b"retry-after:")[2].split(b"\r\n", 1)[0].strip()
        raise RefusedError(status, body, float(wait) if wait.isdigit() else 0.0)
    return body, rest


def _chunked(connection: socket.socket, rest: bytes) -> tuple[bytes, bytes]:
    parts = list[bytes]()
    while True:
        while b"\r\n" not in rest:
            rest += _more(connection)
        line, _, rest = rest.partition(b"\r\n")
        size = int(line, 16)
        while len(rest) < size + 2:
            rest += _more(connection)
        parts.append(rest[:size])
        rest = rest[size + 2 :]
        if size == 0:
            return b"".join(parts), rest


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 20)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data
