"""HTTP receiver of shipped data, on a free local port in threads of this process."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Taken:
    """Received request. A ``body`` compressed with gzip is uncompressed."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answering = Callable[[Taken], tuple[int, Mapping[str, str], bytes]]


@dataclass
class Receiver:
    """Recorded requests, and the answer to each request: status, headers and body."""

    answering: Answering = lambda taken: (204, {}, b"")
    requests: list[Taken] = field(default_factory=list)
    port: int = 0
    connections: list[socket.socket] = field(default_factory=list)

    def drop(self) -> None:
        """Close the connections without an answer."""
        for one in self.connections:
            one.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self) -> Sequence[bytes]:
        return [taken.body for taken in list(self.requests)]


@contextmanager
def receiving(answering: Answering | None = None, port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver() if answering is None else Receiver(answering)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            receiver.connections.append(self.connection)

        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            taken = Taken(self.command, self.path, headers, body)
            status, more, content = receiver.answering(taken)
            if status < 300:
                receiver.requests.append(taken)
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = _take  # noqa: N815 - the names that are called

        def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - as it is there
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
