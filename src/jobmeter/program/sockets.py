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

    ``renewed`` is True in the first send after new ones were found.
    """

    def __init__(self) -> None:
        self.renewed = False
        self._open: dict[str, socket.socket] = {}
        self._searched = float("-inf")

    def open(self) -> bool:
        """Search for sockets if there are none. True if there are some."""
        self.renewed = False
        if not self._open and monotonic() - self._searched >= _LOOK_SECONDS:
            self._searched = monotonic()
            user = os.getuid() if hasattr(os, "getuid") else -1
            for path in places.sockets(os.environ.get(places.VARIABLE), user):
                self._connect(path)
            self.renewed = bool(self._open)
        return bool(self._open)

    def send(self, data: bytes) -> bool:
        """Send a message to all. True if one has taken it. A socket without a receiver is closed."""
        taken = False
        for path, one in list(self._open.items()):
            try:
                one.send(data)
                taken = True
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno not in {EMSGSIZE, ENOBUFS}:
                    one.close()
                    del self._open[path]
        return taken

    def close(self) -> None:
        """Close all."""
        for one in self._open.values():
            one.close()
        self._open.clear()

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
            self._open[path] = one
