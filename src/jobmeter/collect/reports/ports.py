"""Find the process at the other end of a loopback connection: by the inode of its socket in /proc."""

import os
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
_INODE, _LOCAL = 9, 1


class PortOwners:
    """Remembers the process of each port for five seconds. Thread-safe.

    Only ``processes`` are searched. A sender in another network namespace cannot reach the loopback
    address of this one.
    """

    def __init__(self, processes: Callable[[], Iterable[int]], proc_root: str = "/proc") -> None:
        self._processes = processes
        self._proc = proc_root
        self._lock = Lock()
        self._found: dict[tuple[str, int], tuple[float, int]] = {}
        self._searches = TokenBucket(_SEARCHES_A_SECOND, _SEARCHES_A_SECOND, monotonic())

    def find(self, protocol: str, port: int) -> int | None:
        """Return the process that has the port (``tcp`` or ``udp``); None if unknown."""
        now = monotonic()
        with self._lock:
            at, process = self._found.get((protocol, port), (0.0, 0))
            if process and now - at < _LASTS_SECONDS:
                return process
            if not self._searches.take(1, now):
                return process or None
            process = self._search(protocol, port)
            while len(self._found) >= _MOST:
                del self._found[next(iter(self._found))]
            self._found.pop((protocol, port), None)
            if process:
                self._found[protocol, port] = now, process
            return process or None

    def _search(self, protocol: str, port: int) -> int:
        sought = {f"socket:[{inode}]" for name in (protocol, f"{protocol}6") for inode in self._inodes(name, port)}
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

    def _inodes(self, table: str, port: int) -> list[str]:
        """Return the inodes of the sockets with this local port that are open."""
        end = f":{port:04X}"
        lines = (files.read(str(Path(self._proc, "net", table)), _MOST_BYTES) or b"").decode().splitlines()[1:]
        rows = (line.split() for line in lines)
        return [row[_INODE] for row in rows if len(row) > _INODE and row[_LOCAL].endswith(end) and row[_INODE] != "0"]
