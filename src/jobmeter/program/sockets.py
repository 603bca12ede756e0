"""Sockets that a program sends its reports to. Standard library only."""

import os
from errno import EMSGSIZE, ENOBUFS
from time import monotonic

from jobmeter.wire.program import places

TYPE_CHECKING = False
"""Constant for type checkers; the module ``typing`` takes longer to import than this package."""
if TYPE_CHECKING:
    import socket

_LOOK_SECONDS = 2.0
"""Seconds between two searches for a socket."""


class Sockets:
    """Sockets of the receivers on this machine. A send never waits. For one thread.

    ``renewed`` is True during the first send after new sockets were found. ``full`` is True if a socket had no room for
    the last message.
    """

    def __init__(self) -> None:
        self.renewed = False
        self.full = False
        self._open: dict[str, tuple[socket.socket, tuple[int, int]]] = {}
        self._searched = float("-inf")

    def open(self) -> bool:
        """Search for new sockets every two seconds. Return True if any is open."""
        self.renewed = self.full = False
        if any(_identity(one) != identity for one, identity in self._open.values()):
            self.close()
        if monotonic() - self._searched >= _LOOK_SECONDS:
            self._searched = monotonic()
            user = os.getuid() if hasattr(os, "getuid") else -1
            for path in places.list_sockets(os.environ.get(places.VARIABLE), user):
                if path not in self._open:
                    self._connect(path)
        return bool(self._open)

    def send(self, data: bytes) -> bool:
        """Send a message to every socket, and close sockets without a receiver. Return True if one has accepted it."""
        taken = full = False
        for path, (one, _) in list(self._open.items()):
            try:
                one.send(data)
                taken = True
            except BlockingIOError:
                full = True
            except OSError as error:
                if error.errno not in {EMSGSIZE, ENOBUFS}:
                    self._drop(path)
        self.full = full and not taken
        return taken

    def close(self) -> None:
        """Close all sockets. The next ``open`` searches again."""
        for path in list(self._open):
            self._drop(path)
        self._searched = float("-inf")

    def _drop(self, path: str) -> None:
        one, identity = self._open.pop(path)
        if _identity(one) == identity:
            one.close()
        else:
            one.detach()  # the program closed the descriptor, whose number may be that of another file now

    def _connect(self, path: str) -> None:
        import socket  # noqa: PLC0415 - see report_thread

        if not hasattr(socket, "AF_UNIX"):
            return
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            one.setblocking(False)
            one.connect(path)
        except (OSError, ValueError):
            one.close()
        else:
            self._open[path] = one, _identity(one)
            self.renewed = True


def _identity(one: "socket.socket") -> tuple[int, int]:
    """Return the device and inode behind the socket's descriptor; zeros for a closed one."""
    try:
        found = os.fstat(one.fileno())
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
