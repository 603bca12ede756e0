"""Cost of viewers of one live job: the server's CPU time, as the kernel counts it, by the number of viewers."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.processes import cpu_seconds
from jobmeter.examples.server import OwnServer

_PIECE = 1 << 18
_EMPTY_BLOCK = b"\x00\x00\xff\xff"
SETTLE_SECONDS = 2.5
"""Seconds before counting starts, longer than the interval of updates.

A new viewer gets an update immediately, which must not count.
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """CPU milliseconds of the server a second, and the fewest updates and bytes that a viewer received."""

    cpu: float
    updates: int
    size: int


class _Viewers:
    """Connections that receive live updates, read by one thread."""

    def __init__(self, server: OwnServer, address: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._over = threading.Event()
        self.updates = [0] * count
        self.sizes = [0] * count
        place = urlsplit(server.api.transport.server)
        headers = f"Host: {place.netloc}\r\nAuthorization: Bearer {server.token}\r\nAccept-Encoding: gzip"
        head = f"GET {address} HTTP/1.1\r\n{headers}\r\n\r\n".encode()
        for number in range(count):
            connection = socket.create_connection((place.hostname or "", place.port or 80), 30)
            connection.sendall(head)
            self._selector.register(connection, selectors.EVENT_READ, number)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.2):
                piece = key.fileobj.recv(_PIECE)  # type: ignore[union-attr]
                if not piece:
                    self._selector.unregister(key.fileobj)
                # The server flushes the compressed stream after each update: it ends with an empty stored block
                # (RFC 1951, section 3.2.4).
                self.updates[key.data] += piece.count(_EMPTY_BLOCK)
                self.sizes[key.data] += len(piece)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def watched(server: OwnServer, address: str, viewers: int, seconds: float) -> Watched:
    """Measure the server for ``seconds`` while ``viewers`` connections receive the live updates of ``address``."""
    with contextlib.closing(_Viewers(server, address, viewers)) as looking:
        time.sleep(SETTLE_SECONDS)
        updates, sizes = list(looking.updates), list(looking.sizes)
        begin, before = time.monotonic(), cpu_seconds(server.pid)
        time.sleep(seconds)
        cpu = (cpu_seconds(server.pid) - before) * 1000 / (time.monotonic() - begin)
        return Watched(cpu, _least(looking.updates, updates), _least(looking.sizes, sizes))


def rounds(
    server: OwnServer, address: str, counts: Sequence[int], seconds: float, times: int
) -> Iterator[list[Watched]]:
    """Yield ``times`` rounds, each with a measurement of every number of viewers in ``counts``.

    The numbers alternate, so that other load on the machine affects all of them alike.
    """
    for _ in range(times):
        yield [watched(server, address, count, seconds) for count in counts]


def _least(now: Sequence[int], before: Sequence[int]) -> int:
    return min((a - b for a, b in zip(now, before, strict=True)), default=0)
