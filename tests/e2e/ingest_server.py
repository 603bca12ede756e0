"""Server inside the test that receives and keeps frames, for tests of senders, on a free port."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.unit.wire.straight_reader import read_body


class Received:
    """Received frames. ``refuse`` maps a body to a refusal (status, headers, body), or to None to accept it."""

    def __init__(self):
        self.bodies = []
        self.headers = []
        self.refuse: Any = lambda body: None
        self.attempt: Any = (200, {}, b'{"attempt":0}')
        self.url = ""

    @property
    def samples(self):
        return [sample for body in self.bodies for kind, read in read_body(body) if kind == 1 for sample in read]

    @property
    def jobs(self):
        records = [json.loads(read) for body in self.bodies for kind, read in read_body(body) if kind == 2]
        return [job for record in records for job in record.get("jobs", [])]

    @property
    def nodes(self):
        records = [json.loads(read) for body in self.bodies for kind, read in read_body(body) if kind == 2]
        return [node for record in records for node in record.get("nodes", [])]

    @property
    def events(self):
        records = [json.loads(read) for body in self.bodies for kind, read in read_body(body) if kind == 2]
        return [event for record in records for event in record.get("events", [])]

    def values(self, metric, **names):
        """Return [(time, value)] of a metric, ordered by time."""
        return sorted(
            (sample.time_ms, sample.value)
            for sample in self.samples
            if sample.series.metric == metric
            and all(getattr(sample.series, name) == value for name, value in names.items())
        )


@contextmanager
def ingest_server():
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if "/attempt" in self.path:
                self._answer(*received.attempt)
                return
            self._answer(200, {}, b'{"status":"ok","version":"0"}')

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path.endswith("/checks"):  # an agent asks which work the server has for it
                self._answer(200, {}, b'{"asks":[]}')
                return
            received.headers.append((self.path, dict(self.headers)))
            refusal = received.refuse(body)
            if refusal:
                self._answer(*refusal)
                return
            received.bodies.append(body)
            count = sum(len(read) for kind, read in read_body(body) if kind == 1)
            self._answer(200, {}, json.dumps({"accepted": count, "records": 0, "rejected": {}}).encode())

        def _answer(self, status, headers, body):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
