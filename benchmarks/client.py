"""One client for all: whole requests on kept connections, timed from the first byte out to the last byte in."""

import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """A GET that a contestant is asked; its answer's size is checked, so that an error cannot win."""

    port: int
    path: str
    headers: Mapping[str, str]

    def encode(self) -> bytes:
        lines = [
            f"GET {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            *(f"{k}: {v}" for k, v in self.headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass(frozen=True)
class Latency:
    """Milliseconds over the requests of one run."""

    p50: float
    p99: float
    count: int


def answer(request: Request) -> bytes:
    """The body of one answer; RuntimeError unless it is a 200."""
    with socket.create_connection(("127.0.0.1", request.port), 60) as connection:
        connection.sendall(request.encode())
        return _read(connection, b"")[0]


def latency(request: Request, seconds: float) -> Latency:
    """One connection, one request after the other."""
    message, times = request.encode(), list[float]()
    with socket.create_connection(("127.0.0.1", request.port), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end, rest = time.perf_counter() + seconds, b""
        while time.perf_counter() < end or len(times) < 3:
            begin = time.perf_counter()
            connection.sendall(message)
            _, rest = _read(connection, rest)
            times.append((time.perf_counter() - begin) * 1000)
    times.sort()
    return Latency(statistics.median(times), times[int(len(times) * 0.99)], len(times))


def rate(request: Request, connections: int, seconds: int) -> float | None:
    """Answers a second over that many connections, by wrk on one thread; None when wrk is not installed."""
    if shutil.which("wrk") is None:
        return None
    headers = [part for name, value in request.headers.items() for part in ("-H", f"{name}: {value}")]
    url = f"http://127.0.0.1:{request.port}{request.path}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *headers, url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output:
        raise RuntimeError(output)
    found = re.search(r"Requests/sec:\s+([\d.]+)", output)
    return float(found.group(1)) if found else None


def post(port: int, path: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send one body and wait for a 2xx."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.sendall(("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode())
        connection.sendall(body)
        _read(connection, b"")


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
        raise RuntimeError(f"{status}: {body[:500]!r}")
    return body, rest


def _chunked(connection: socket.socket, rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        while b"\r\n" not in rest:
            rest += _more(connection)
        line, _, rest = rest.partition(b"\r\n")
        size = int(line, 16)
        while len(rest) < size + 2:
            rest += _more(connection)
        body, rest = body + rest[:size], rest[size + 2 :]
        if size == 0:
            return body, rest


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 20)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


def folder() -> Path:
    """A fresh folder for one contestant."""
    return Path(tempfile.mkdtemp(prefix="jobmeter-bench-"))
