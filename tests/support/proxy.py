"""Proxies on 127.0.0.1: a TCP proxy whose network can be cut, and a proxy that terminates TLS."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread


class Proxy:
    """TCP proxy for ``port``. Its ``url`` stays the same after a cut."""

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
        """Accept connections, for the first time or after a cut."""
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
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # nobody listens there any more
                near.close()
                continue
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
    """Run a proxy to a local port for the block."""
    found = Proxy(target)
    try:
        yield found
    finally:
        found.cut()


@contextmanager
def tls_proxy(target: int, certificate: Path, key: Path) -> Iterator[int]:
    """Run a proxy that accepts TLS and forwards plain HTTP to ``target``; yield its port.

    It keeps the Host header, and describes the original request in ``X-Forwarded-*``, like a usual proxy.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _hand_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            far = HTTPConnection("127.0.0.1", target, timeout=60)
            told = {"X-Forwarded-For": self.client_address[0], "X-Forwarded-Proto": "https"}
            far.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in [*self.headers.items(), *told.items()]:
                far.putheader(name, value)
            far.endheaders(body)
            answer = far.getresponse()
            content = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            far.close()

        do_GET = do_POST = do_DELETE = _hand_on  # noqa: N815 - the base class's names

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
