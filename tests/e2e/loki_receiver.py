"""Receives pushes to Loki, checks their form, and appends them to a file before it answers.

``loki_receiver.py FILE NOTE PORT`` writes its listening port to NOTE. The form is specified at
https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs.
"""

import gzip
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

FILE, NOTE, PORT = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])


def check(body):
    """Raise an error unless the push has the published form."""
    if set(body) != {"streams"}:
        raise ValueError("only streams")
    for stream in body["streams"]:
        if set(stream) != {"stream", "values"} or not stream["stream"]:
            raise ValueError("a stream has labels and values")
        for at, text, metadata in stream["values"]:
            if not at.isdecimal() or not isinstance(text, str):
                raise ValueError("a value is a time and a line")
            if not all(isinstance(value, str) for value in (*stream["stream"].values(), *metadata.values())):
                raise ValueError("labels are texts")


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            content = json.loads(gzip.decompress(body))
            check(content)
        except (ValueError, KeyError, TypeError) as error:
            self.send_error(400, str(error))
            return
        descriptor = os.open(FILE, os.O_CREAT | os.O_APPEND | os.O_RDWR)
        size = os.fstat(descriptor).st_size
        # A line that a kill left half-written was never acknowledged.
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            whole = FILE.read_bytes().rpartition(b"\n")
            os.ftruncate(descriptor, len(whole[0]) + len(whole[1]))
        os.write(descriptor, json.dumps(content).encode() + b"\n")
        os.fsync(descriptor)
        os.close(descriptor)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format, *values):  # noqa: A002
        pass


server = HTTPServer(("127.0.0.1", PORT), Handler)
NOTE.write_text(f"{server.server_port}\n")
server.serve_forever()
