"""Tests of choosing the server and the key of a command, and of starting a server."""

import http.server
import json
import os
import ssl
import textwrap
import threading

import pytest
from tests.support import certificates

from jobmeter.cli import local
from jobmeter.collect.spool import Spool
from jobmeter.errors import ConfigurationError, UnauthenticatedError, UnavailableError

SERVE = textwrap.dedent(
    """
    import http.server, json, os, pathlib, sys
    data = pathlib.Path(sys.argv[sys.argv.index("--data") + 1])
    (data / "starts").open("a").write("x")
    if (data / "fail").exists():
        print("the disk is full"); sys.exit(3)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            (data / "credential").write_text(str(self.headers["Authorization"]))
            self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
            if self.path == "/bye": os._exit(0)
        def log_message(self, *a): pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (data / "admin.key").write_text('{"token": "mine"}')
    url = f"http://127.0.0.1:{server.server_address[1]}"
    (data / "arguments").write_text(" ".join(sys.argv))
    (data / "server.json").write_text(json.dumps({"pid": os.getpid(), "url": url, "started": 0}))
    server.serve_forever()
    """
)


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def startable(monkeypatch, tmp_path, data):
    """Replace ``python -m jobmeter serve`` by a program that listens at once."""
    package = tmp_path / "stand-in" / "jobmeter"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(SERVE)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setattr(local, "DEFAULT_SERVER", "http://127.0.0.1:9")
    started = []
    launch = local.subprocess.Popen  # type: ignore[attr-defined]

    def remember(*arguments, **how):
        started.append(launch(*arguments, **how))
        return started[-1]

    monkeypatch.setattr("subprocess.Popen", remember)
    yield data
    for process in started:
        process.terminate()
        process.wait()


def own(data, url, pid=None, token="mine"):
    (data / "admin.key").write_text(json.dumps({"token": token}))
    (data / "server.json").write_text(json.dumps({"pid": pid or os.getpid(), "url": url, "started": 0}))


def key_shown(server, transport):
    server.on("/whoami", {"id": "k"})
    transport.request("GET", "/api/jobmeter/v1/whoami")
    return server.asked[-1].headers.get("authorization")


def test_a_named_server_is_taken_as_it_is(server, data):
    transport = local.connect(server.url + "/", "k1", data)
    assert transport.server == server.url
    assert key_shown(server, transport) == "Bearer k1"


def test_the_environment_names_server_and_key(server, data, monkeypatch):
    monkeypatch.setenv("JOBMETER_SERVER", server.url.removeprefix("http://"))
    monkeypatch.setenv("JOBMETER_KEY", "k2")
    assert key_shown(server, local.connect(None, None, data)) == "Bearer k2"


def test_the_folders_key_goes_to_a_server_of_this_machine(server, data):
    own(data, "http://elsewhere:1")
    assert key_shown(server, local.connect(server.url, None, data)) == "Bearer mine"


def test_the_folders_key_goes_to_no_stranger(server, data):
    own(data, "http://127.0.0.1:1")
    transport = local.connect("http://example.com:8400", None, data)
    transport.server = server.url
    assert key_shown(server, transport) is None


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http:///p"])
def test_an_address_that_is_none_is_refused(data, address):
    with pytest.raises(ConfigurationError, match="is not an address"):
        local.connect(address, None, data)


def test_the_folders_own_server_is_found(server, data):
    server.answers["GET", "/readyz"] = {}
    own(data, server.url)
    assert local.connect(None, None, data).server == server.url


def test_a_dead_or_silent_server_is_not_taken(server, data, monkeypatch):
    monkeypatch.setattr(local, "DEFAULT_SERVER", "http://127.0.0.1:9")
    own(data, server.url, pid=2**22 + 1)
    with pytest.raises(UnavailableError, match="no server answers"):
        local.connect(None, None, data, start=False)
    own(data, server.url)  # alive, but not ready: /readyz returns 404
    with pytest.raises(UnavailableError, match="no server answers"):
        local.connect(None, None, data, start=False)


def test_the_default_port_is_taken_only_with_a_key_that_holds(server, data, monkeypatch):
    monkeypatch.setattr(local, "DEFAULT_SERVER", server.url)
    (data / "admin.key").write_text('{"token": "mine"}')
    server.on("/whoami", lambda asked: (200, {"id": "k"}, {}))
    assert local.connect(None, None, data, start=False).server == server.url
    problem = {"error": {"code": "unauthenticated", "message": "no"}}
    server.on("/whoami", lambda asked: (401, problem, {}))
    with pytest.raises(UnavailableError):
        local.connect(None, None, data, start=False)
    with pytest.raises(UnauthenticatedError):
        local.connect(server.url, None, data).request("GET", "/api/jobmeter/v1/whoami")


def test_one_is_started_when_there_is_none(startable):
    transport = local.connect(None, None, startable)
    transport.request("GET", "/readyz")
    assert (startable / "credential").read_text() == "Bearer mine"
    arguments = (startable / "arguments").read_text().split()[1:]
    assert arguments == ["serve", "--data", str(startable), "--port", "0", "--idle-exit", "600"]
    assert local.connect(None, None, startable).server == transport.server
    assert (startable / "starts").read_text() == "x"


def test_what_a_first_start_makes_is_for_its_owner_alone(startable):
    startable.rmdir()
    before = os.umask(0o022)
    try:
        # A run creates its spool before it contacts a server.
        Spool(startable / "spool").close()
        local.connect(None, None, startable)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (startable, startable / "spool")}
    assert modes == {"data": 0o700, "spool": 0o700}
    assert (startable / "server.log").stat().st_mode & 0o777 == 0o600


def test_two_starters_share_one_server(startable):
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(local.connect(None, None, startable).server)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert (startable / "starts").read_text() == "x"


def test_a_server_that_does_not_start_is_reported_from_its_log(startable):
    (startable / "fail").touch()
    with pytest.raises(UnavailableError, match=r"status 3\): the disk is full \(see .*server.log\)"):
        local.connect(None, None, startable)


def test_a_server_that_cannot_be_verified_is_reported_before_the_data_folder_that_it_holds(startable, tmp_path):
    made = certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready) as listener:
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
        url = f"https://127.0.0.1:{listener.server_address[1]}"
        own(startable, url)
        (startable / "fail").touch()
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            with pytest.raises(UnavailableError) as caught:
                local.connect(None, None, startable)
            assert local.connect(None, None, startable, ca_file=str(made.ca)).server == url
        finally:
            listener.shutdown()
            thread.join()
    assert caught.value.message.startswith(f"no answer from {url}: its certificate is not trusted (")
    assert "--ca-file; the server did not start (status 3): the disk is full" in caught.value.message


def test_without_the_server_extra_the_remedy_is_reported(data, monkeypatch):
    monkeypatch.setattr(local, "DEFAULT_SERVER", "http://127.0.0.1:9")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"\[server\]', or name a server"):
        local.connect(None, None, data)


def test_a_data_folder_that_cannot_be_made_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "DEFAULT_SERVER", "http://127.0.0.1:9")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"the data folder .* cannot be used"):
        local.connect(None, None, tmp_path / "file" / "data")
