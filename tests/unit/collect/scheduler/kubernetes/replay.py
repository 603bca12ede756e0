"""Small HTTP server that answers like the recorded API server: an empty list, then the recorded events."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

RECORDED = Path(__file__).with_name("recorded")
PATHS = {"/api/v1/pods": "pods", "/apis/batch/v1/jobs": "jobs", "/apis/apps/v1/replicasets": "replicasets"}


def recorded(name: str) -> list[bytes]:
    """Return the recorded events of one kind, one a line."""
    return (RECORDED / f"{name}.jsonl").read_bytes().splitlines()


class Replay(ThreadingHTTPServer):
    """Replaying server; ``events`` are by path; ``gone`` are versions that it refuses with 410. ``port`` 0: any."""

    daemon_threads = True

    def __init__(self, events: Mapping[str, list[bytes]], gone: frozenset[str] = frozenset(), *, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.events = events
        self.lists: Mapping[str, list[bytes]] = {}
        self.gone = gone
        self.asked: list[tuple[str, Mapping[str, list[str]]]] = []
        self.over = threading.Event()

    @property
    def kubeconfig(self) -> str:
        return (
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
            f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{self.server_address[1]}'}}}}]\n"
            "users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        )


class _Handler(BaseHTTPRequestHandler):
    server: Replay

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        self.server.asked.append((parts.path, query))
        if parts.path not in self.server.events:
            self._answer(404, b"404 page not found")
        elif "watch" not in query:
            items = self.server.lists.get(parts.path, [])
            whole = b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(items) + b"]}"
            self._answer(200, whole)
        elif query["resourceVersion"][0] in self.server.gone:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            self._answer(200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        else:
            self.send_response(200)
            self.end_headers()
            if query["resourceVersion"] == ["1"]:
                # In pieces that do not end at line ends.
                body = b"\n".join(self.server.events[parts.path]) + b"\n"
                for first in range(0, len(body), 10_000):
                    self.wfile.write(body[first : first + 10_000])
            self.wfile.flush()
            self.server.over.wait(60)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        pass


@contextmanager
def replaying(server: Replay) -> Iterator[Replay]:
    """Run the server inside the block."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
