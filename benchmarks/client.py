"""HTTP client for all contestants: closed loops on persistent connections, driven by one thread with epoll."""

import contextlib
import functools
import gc
import http.client
import select
import socket
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_PIECE = 1 << 20


@dataclass(frozen=True)
class Request:
    """GET request to a port of this machine."""

    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the bytes of the request."""
        return _head("GET", self.port, self.path, self.headers)


@dataclass(frozen=True)
class Post:
    """Target of POST requests: port, path and headers."""

    port: int
    path: str
    headers: Mapping[str, str]

    def encode(self, body: bytes) -> bytes:
        """Return the bytes of a request with ``body``."""
        return _head("POST", self.port, self.path, {**self.headers, "Content-Length": str(len(body))}) + body


class RefusedError(RuntimeError):
    """Error for a response whose ``status`` is not 2xx. ``wait`` is its Retry-After in seconds, 0 without one."""

    def __init__(self, status: int, body: bytes, wait: float = 0.0) -> None:
        super().__init__(f"{status}: {body[:500]!r}")
        self.status = status
        self.wait = wait


class Response:
    """HTTP/1.1 response that is fed with bytes as they arrive. Responses must not be pipelined."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0
        self._size = -1

    def feed(self, data: bytes) -> bool:
        """Add received bytes and return True when the response is complete. Raises ConnectionError without bytes."""
        if not data:
            raise ConnectionError("the server closed the connection")
        self._data += data
        if not self._start and not self._parse_head():
            return False
        if self._size < 0:
            # The text of the contestants' answers contains no CR, so these bytes are the last chunk.
            return len(self._data) >= self._start + 5 and self._data.endswith(b"0\r\n\r\n")
        return len(self._data) >= self._start + self._size

    def body(self) -> bytes:
        """Return the body with its chunks joined. Raises RefusedError unless the status is 2xx."""
        raw = bytes(self._data[self._start :])
        body = _joined(raw) if self._size < 0 else raw
        status = int(self._data[9:12])
        if not 200 <= status < 300:
            wait = self._header(b"retry-after").decode()
            raise RefusedError(status, body, float(wait) if wait.isdigit() else 0.0)
        return body

    def check(self) -> None:
        """Raise RefusedError unless the status is 2xx. Cheaper than ``body``."""
        if self._data[9] != ord("2"):
            self.body()

    def _parse_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return False
        self._start = end + 4
        size = self._header(b"content-length")
        chunked = self._header(b"transfer-encoding").lower() == b"chunked"
        self._size = -1 if chunked else int(size or b"0")
        return True

    def _header(self, name: bytes) -> bytes:
        return (
            bytes(self._data[: self._start]).lower().partition(b"\r\n" + name + b":")[2].partition(b"\r\n")[0].strip()
        )


class Connection:
    """Persistent connection for one request after the other."""

    def __init__(self, port: int) -> None:
        self._socket = _connect(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._socket.close()

    def ask(self, message: bytes) -> bytes:
        """Send a request and return the body of the response. Raises RefusedError unless the status is 2xx."""
        self._socket.sendall(message)
        response = Response()
        while not response.feed(self._socket.recv(_PIECE)):
            pass
        return response.body()


def answer(request: Request) -> bytes:
    """Send a request on a new connection and return the body of the response.

    Raises RefusedError unless the status is 2xx.
    """
    with Connection(request.port) as connection:
        return connection.ask(request.encode())


def drain(request: Request) -> Iterator[bytes]:
    """Yield the pieces of a long response as they arrive. Raises RefusedError unless the status is 200."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", request.port, timeout=120)) as connection:
        connection.request("GET", request.path, headers=dict(request.headers))
        response = connection.getresponse()
        if response.status != 200:
            raise RefusedError(response.status, response.read(1000))
        while piece := response.read1(1 << 18):
            yield piece


@dataclass(frozen=True)
class Latency:
    """Latencies of the requests of one round in milliseconds, and their count."""

    p50: float
    p99: float
    worst: float
    count: int


def summary(milliseconds: Sequence[float]) -> Latency:
    """Return median, 99th percentile, maximum and count of at least one time in milliseconds."""
    times = sorted(milliseconds)
    return Latency(statistics.median(times), times[int(len(times) * 0.99)], times[-1], len(times))


@dataclass(frozen=True)
class Drive:
    """Closed loop: milliseconds of each response, seconds that the loop took, CPU seconds of the client's thread."""

    times: Sequence[float]
    seconds: float
    cpu: float

    @functools.cached_property
    def latency(self) -> Latency:
        """Return the quantiles of ``times``."""
        return summary(self.times)

    @property
    def rate(self) -> float:
        """Return the responses a second."""
        return len(self.times) / self.seconds

    @property
    def share(self) -> float:
        """Return the CPU usage of the client in percent of one core."""
        return 100 * self.cpu / self.seconds


def drive(port: int, lanes: Sequence[Iterator[bytes]], seconds: float | None = None) -> Drive:
    """Send the messages of all lanes concurrently.

    Each lane has a connection of its own and sends a message after the response to the last one. A lane ends with its
    iterator; several lanes may share an iterator. After ``seconds`` no message is sent, but at least three are sent in
    all. Raises RefusedError for a response other than 2xx, because an error must not count as an answer.
    """
    with contextlib.ExitStack() as stack:
        epoll = stack.enter_context(contextlib.closing(select.epoll()))
        open_lanes = [stack.enter_context(contextlib.closing(_Lane(port, messages, epoll))) for messages in lanes]
        stack.callback(gc.enable)
        gc.disable()
        cpu, begin = time.thread_time(), time.perf_counter()
        times = _run(epoll, open_lanes, begin + (seconds or 1e9))
        return Drive(times, time.perf_counter() - begin, time.thread_time() - cpu)


class _Lane:
    """Connection of a closed loop. The next message is encoded before the response to the last one arrives."""

    def __init__(self, port: int, messages: Iterator[bytes], epoll: select.epoll) -> None:
        self._socket = _connect(port)
        self._socket.setblocking(False)
        self._epoll = epoll
        self._messages = messages
        self._next = next(messages, None)
        self._unsent = memoryview(b"")
        self._response = Response()
        self.began = 0.0
        self.number = self._socket.fileno()
        epoll.register(self.number, select.EPOLLIN)

    def begin(self) -> bool:
        """Send the next message and return True; return False without another message."""
        if self._next is None:
            return False
        self._response = Response()
        self.began = time.perf_counter()
        self._unsent = memoryview(self._next)
        self.send()
        self._next = next(self._messages, None)
        return True

    def send(self) -> None:
        """Send as much of the message as the socket takes. Epoll reports when the socket takes more."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        self._epoll.modify(self.number, select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0))

    def receive(self) -> bool:
        """Read received bytes and return True when the response is complete. Raises RefusedError unless it is a 2xx."""
        complete = self._response.feed(self._socket.recv(_PIECE))
        if complete:
            self._response.check()
        return complete

    def close(self) -> None:
        self._socket.close()


def _run(epoll: select.epoll, lanes: Sequence[_Lane], end: float) -> list[float]:
    times = list[float]()
    by_number = {lane.number: lane for lane in lanes}
    active = sum(lane.begin() for lane in lanes)
    while active:
        for number, events in epoll.poll(120):
            lane = by_number[number]
            if events & select.EPOLLOUT:
                lane.send()
            if events & ~select.EPOLLOUT and lane.receive():
                now = time.perf_counter()
                times.append((now - lane.began) * 1000)
                if not ((now < end or len(times) < 3) and lane.begin()):
                    active -= 1
    return times


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 120)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _head(method: str, port: int, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _joined(raw: bytes) -> bytes:
    parts = list[bytes]()
    while True:
        line, _, raw = raw.partition(b"\r\n")
        size = int(line, 16)
        if size == 0:
            return b"".join(parts)
        parts.append(raw[:size])
        raw = raw[size + 2 :]
