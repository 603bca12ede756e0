"""ClickHouse's HTTP interface in front of embedded chDB: a server for tests, with the real engine behind it.

``python http_engine.py FOLDER [CONFIG]`` prints its port and serves until its standard input ends. With a
configuration, which names clusters, it stands for one node: it runs what is meant for all of them, and keeps in a plain
table what a cluster would replicate. It speaks as much of the interface as clickhouse-connect uses: statements and
parameters in the URL, the body or a form, settings in the URL, inserts in the body, streamed answers, errors with their
code.
"""

import os
import re
import sys
import tempfile
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import parse_qs, urlsplit

import chdb

_NOT_SETTINGS = frozenset(
    {
        "buffer_size",
        "client_protocol_version",
        "compress",
        "database",
        "decompress",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "password",
        "query",
        "query_id",
        "role",
        "send_progress_in_http_headers",
        "session_id",
        "session_timeout",
        "user",
        "wait_end_of_query",
    }
)


class Engine:
    """Connections to one folder, one for each request at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def take(self):
        try:
            return self._idle.get_nowait()
        except Empty:
            return chdb.connect(self._folder)

    def give_back(self, connection) -> None:
        self._idle.put(connection)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine
    alone: bool = False

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}
        statement, parameters, data = self._request(url)
        settings = {name: value for name, value in url.items() if name not in _NOT_SETTINGS and name[:6] != "param_"}
        if self.alone:
            statement = re.sub(r" ON CLUSTER '\w+'", "", statement)
            statement = re.sub(r"Replicated(ReplacingMergeTree)\('[^']+', '[^']+'(?:, )?", r"\1(", statement)
        connection = self.engine.take()
        self.started = False
        try:
            connection.query(f"USE {url.get('database', 'default')}")
            quoted = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
            connection.query(f"SET max_execution_time = 0{', ' if quoted else ''}{quoted}")
            if data is not None:
                self._insert(connection, statement, data)
            else:
                self._select(connection, statement, parameters)
        except RuntimeError as error:
            self._fail(str(error))
        except OSError:
            self.close_connection = True  # the client has gone
        finally:
            self.engine.give_back(connection)

    def _request(self, url: dict[str, str]) -> tuple[str, dict[str, str], bytes | None]:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or self._chunks()
        parameters = {name[6:]: value for name, value in url.items() if name.startswith("param_")}
        kind = self.headers.get("Content-Type") or ""
        if kind.startswith("multipart/form-data"):
            message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
            fields = {
                str(part.get_param("name", header="content-disposition")): _text(part) for part in message.iter_parts()
            }
            parameters |= {name[6:]: value for name, value in fields.items() if name.startswith("param_")}
            return fields.get("query") or url["query"], parameters, None
        if "query" in url:
            return url["query"], parameters, body or None
        if body.lstrip()[:11].upper() == b"INSERT INTO" and b"FORMAT Native\n" in body[:4096]:
            statement, _, data = body.partition(b"\n")
            return statement.decode(), parameters, data
        return body.decode(), parameters, None

    def _chunks(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _insert(self, connection, statement: str, data: bytes) -> None:
        head, _, form = statement.rpartition("FORMAT")
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            connection.query(f"{head} FROM INFILE '{file.name}' FORMAT {form}")
        self._start()
        self._end()

    def _select(self, connection, statement: str, parameters: dict[str, str]) -> None:
        if statement.lstrip().split(None, 1)[0].upper() not in {"SELECT", "WITH"}:
            answer = connection.query(statement, "TabSeparated", params=parameters).bytes()
            self._start()
            self._chunk(answer)
            self._end()
            return
        form = "Native" if "FORMAT" not in statement[-20:] else statement.rpartition("FORMAT")[2].strip(" ;\n")
        stream = connection.send_query(statement, form, params=parameters)
        try:
            for block in stream:
                if not self.started:
                    self._start()
                self._chunk(block.bytes())
            if not self.started:
                self._start()
            self._end()
        finally:
            stream.close()

    def _start(self) -> None:
        self.started = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-ClickHouse-Exception-Tag", "exceptiontag0001")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def _fail(self, text: str) -> None:
        text = text[text.find("Code: ") :]
        if self.started:
            tag = "exceptiontag0001"
            self._chunk(f"__exception__\r\n{tag}\r\n{text}\n{len(text)} {tag}\r\n__exception__\r\n".encode())
            self.close_connection = True
            return
        body = text.encode()
        self.send_response(500)
        self.send_header("X-ClickHouse-Exception-Code", text.removeprefix("Code: ").split(".")[0])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _text(part: Any) -> str:
    # A part names no character set, it is UTF-8; the library would take it for ASCII.
    content: bytes = part.get_payload(decode=True)
    return content.decode()


def main() -> None:
    folder = Path(sys.argv[1])
    config = f"&config-file={sys.argv[2]}" if len(sys.argv) > 2 else ""
    Handler.alone = bool(config)
    Handler.engine = Engine(f"{folder}?backups.allowed_path=/{config}")
    Handler.engine.give_back(Handler.engine.take())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
