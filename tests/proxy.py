"""A TCP proxy on 127.0.0.1 whose network can be cut and mended."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread


class Proxy:
    """Hands every connection to ``port`` on to another port. ``url`` stays the same over a cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.mend()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def mend(self) -> None:
        """Take connections, once more after a cut."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            broken, self._open = self._open, set()
        for one in (*broken, *([listener] if listener else [])):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                cut = self._listener is not listener
                self._open |= set() if cut else {near, far}
            if cut:
                near.close()
                far.close()
                return
            for pair in ((near, far), (far, near)):
                Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                sink.sendall(piece)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(target: int) -> Iterator[Proxy]:
    """A proxy to a port of this machine, cut at the end."""
    found = Proxy(target)
    try:
        yield found
    finally:
        found.cut()
