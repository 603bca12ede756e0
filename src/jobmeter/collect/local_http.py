"""HTTP server on the loopback address, for the programs of this machine."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any

LOOPBACK = "127.0.0.1"
MOST_BODY = 4 * 2**20
"""Largest size of a request body in bytes."""
_MOST_FIELDS, _MOST_LINE = 100, 2**16
"""Most header fields of a request, and most bytes of one line."""

_log = logging.getLogger(__name__)


class LocalServer(ThreadingHTTPServer):
    """Server with a thread for each connection. Refuses connections beyond ``most``.

    For ``port`` 0 the system chooses one. ``thread`` names the accepting thread. Raises OSError if the port is taken.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: "type[LocalHandler]", most: int, thread: str) -> None:
        self.request_queue_size = most
        self._places = BoundedSemaphore(most)
        super().__init__((LOOPBACK, port), handler)
        self._accepting = Thread(target=self.serve_forever, args=(0.2,), name=thread, daemon=True)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://{LOOPBACK}:{self.server_address[1]}"

    def start(self) -> None:
        """Begin to serve."""
        self._accepting.start()

    def stop(self) -> None:
        """Close the port. Waits until no connection is being accepted."""
        if self._accepting.ident is not None:
            self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind the port without looking up the host's name, as the base class would."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Start a thread for the connection. Close the connection if there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Serve the connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as in the base class
        """Log a broken connection."""
        _log.debug("a local request failed", exc_info=True)


class LocalHandler(BaseHTTPRequestHandler):
    """Handler of one connection. ``fields`` are the header fields of a request, by name in lower case."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fields: Mapping[str, str] = {}
    raw_requestline: bytes

    def do_GET(self) -> None:
        """Answer a GET. The base class calls a method of this name for each HTTP method."""
        self.respond()

    def do_POST(self) -> None:
        """Answer a POST."""
        self.respond()

    def respond(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def parse_request(self) -> bool:
        """Read the first line and the header fields. Answer 400 or 431, and return False, if they are not HTTP/1.

        The base class parses the header like an e-mail's, which takes longer than all other work for a logged value.
        """
        self.requestline = self.raw_requestline.decode("latin-1").rstrip("\r\n")
        self.command, self.request_version, self.close_connection = "", self.protocol_version, True
        words = self.requestline.split()
        if len(words) != 3 or words[2] not in {"HTTP/1.0", "HTTP/1.1"}:
            self.send_error(HTTPStatus.BAD_REQUEST, "The first line is not a request of HTTP/1.")
            return False
        self.command, self.path, self.request_version = words
        fields: dict[str, str] = {}
        while (line := self.rfile.readline(_MOST_LINE + 1).decode("latin-1")) not in {"\r\n", "\n"}:
            name, colon, value = line.partition(":")
            if len(line) > _MOST_LINE or len(fields) == _MOST_FIELDS:
                self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return False
            if not colon or name != name.strip():
                self.send_error(HTTPStatus.BAD_REQUEST, "A header field is not NAME: VALUE.")
                return False
            fields[name.lower()] = value.strip()
        default = "keep-alive" if self.request_version == self.protocol_version else "close"
        self.fields, self.close_connection = fields, fields.get("connection", default).lower() == "close"
        if fields.get("expect", "").lower() == "100-continue":
            self.handle_expect_100()
        return True

    def read_body(self) -> bytes | None:
        """Return the request's body; None without a valid length. Raises OSError if the sender disconnects."""
        length = self.fields.get("content-length", "0" if self.command == "GET" else "")
        if not (length.isascii() and length.isdigit()) or int(length) > MOST_BODY:
            self.close_connection = True
            return None
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise ConnectionAbortedError("the sender disconnected within the body")
        return data

    def answer(self, status: int, kind: str, body: bytes) -> None:
        """Send an answer of media type ``kind``, in one piece: two pieces would wake the reader twice."""
        lines = (
            f"{self.protocol_version} {status} {HTTPStatus(status).phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
        )
        self.wfile.write("\r\n".join((*lines, "\r\n")).encode("latin-1") + body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Log at debug level."""
        _log.debug(format, *args)
