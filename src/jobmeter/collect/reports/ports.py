"""Find the process at the other end of a loopback connection, by the inode of its socket in /proc."""

import os
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from time import monotonic

from jobmeter.collect import files
from jobmeter.model.token_bucket import TokenBucket

_LASTS_SECONDS = 5.0
_MOST = 1_024
_SEARCHES_A_SECOND = 20.0
_MOST_DESCRIPTORS = 4_096
_MOST_BYTES = 16 * 2**20
_INODE, _LOCAL, _REMOTE = 9, 1, 2
_ANY, _MAPPED = "00000000", f"{'0' * 16}{socket.htonl(0xFFFF):08X}"
"""Address of a socket that is bound to all, and the first words of an IPv4-mapped address."""


class PortOwners:
    """Remembers the process of each sender for five seconds. Thread-safe.

    Only ``processes`` are searched.
    """

    def __init__(self, processes: Callable[[], Iterable[int]], proc_root: str = "/proc") -> None:
        self._processes = processes
        self._proc = proc_root
        self._lock = Lock()
        self._found: dict[tuple[str, str, int, int], tuple[float, int]] = {}
        self._searches = TokenBucket(_SEARCHES_A_SECOND, _SEARCHES_A_SECOND, monotonic())

    def find(self, protocol: str, sender: tuple[str, int], port: int) -> int | None:
        """Return the process that sends from an address to this process's port; None if unknown.

        ``protocol`` is ``tcp`` or ``udp``.
        """
        now = monotonic()
        key = protocol, *sender, port
        with self._lock:
            at, process = self._found.get(key, (0.0, 0))
            if process and now - at < _LASTS_SECONDS:
                return process
            if not self._searches.take(1, now):
                return process or None
            process = self._search(*key)
            while len(self._found) >= _MOST:
                del self._found[next(iter(self._found))]
            self._found.pop(key, None)
            if process:
                self._found[key] = now, process
            return process or None

    def _search(self, protocol: str, host: str, local: int, port: int) -> int:
        word = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}"
        # The same port of another address, or a connection to another port, may belong to another process.
        inodes = [
            *self._find_inodes(protocol, {f"{word}:{local:04X}", f"{_ANY}:{local:04X}"}, port),
            *self._find_inodes(f"{protocol}6", {f"{_MAPPED}{word}:{local:04X}", f"{_ANY * 4}:{local:04X}"}, port),
        ]
        sought = {f"socket:[{inode}]" for inode in inodes}
        if not sought:
            return 0
        for process in self._processes():
            try:
                names = os.listdir(f"{self._proc}/{process}/fd")[:_MOST_DESCRIPTORS]  # noqa: PTH208 - faster
            except OSError:
                continue
            for name in names:
                try:
                    if os.readlink(f"{self._proc}/{process}/fd/{name}") in sought:  # noqa: PTH115 - faster
                        return process
                except OSError:
                    continue
        return 0

    def _find_inodes(self, table: str, addresses: set[str], port: int) -> list[str]:
        """Return the inodes of the open sockets of these addresses that send to a port, or are not connected."""
        ends = f":{port:04X}", ":0000"
        lines = (files.read(str(Path(self._proc, "net", table)), _MOST_BYTES) or b"").decode().splitlines()[1:]
        rows = (line.split() for line in lines)
        return [
            row[_INODE]
            for row in rows
            if len(row) > _INODE and row[_LOCAL] in addresses and row[_REMOTE].endswith(ends) and row[_INODE] != "0"
        ]
