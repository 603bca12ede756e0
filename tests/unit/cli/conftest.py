"""Fake server for command tests: it answers from a table and records its requests."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from jobmeter.cli.main import cli

API = "/api/jobmeter/v1"


@dataclass
class Asked:
    """Request as the server received it."""

    method: str
    path: str
    parameters: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeServer:
    """Answers by (method, path below the API): a body, or a function of the request to (status, body, headers)."""

    url: str = ""
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def on(self, path: str, answer: Any, method: str = "GET") -> None:
        self.answers[method, path] = answer

    def answer(self, asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        if asked.path == f"{API}/resolve" and ("GET", "/resolve") not in self.answers:
            # By default every text resolves to the job of that id. These requests are not recorded.
            return 200, json.dumps({"id": asked.parameters["job"][0], "project": ""}).encode(), {}
        self.asked.append(asked)
        found = self.answers.get((asked.method, asked.path.removeprefix(API)))
        if found is None:
            problem = {"error": {"code": "not_found", "message": f"there is no {asked.path}"}, "request_id": "X"}
            return 404, json.dumps(problem).encode(), {}
        if callable(found):
            status, body, headers = found(asked)
        else:
            status, body, headers = 200, found, {}
        return status, body if isinstance(body, bytes) else json.dumps(body).encode(), headers


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, parts.path, parse_qs(parts.query, keep_blank_values=True), headers, body)
            status, answer, more = fake.answer(asked)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_DELETE = handle_one  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    fake.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield fake
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("JOBMETER_SERVER", "JOBMETER_KEY", "JOBMETER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def run(server: FakeServer) -> Callable[..., Result]:
    """Return a function that runs a command against the server."""

    def run_verb(*arguments: str, **more: Any) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--server", server.url, "--key", "t0"], **more)

    return run_verb
