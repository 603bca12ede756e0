"""Tests of ``jobmeter serve`` as a process: its start, its end, its data folder, its backup."""

import contextlib
import fcntl
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import threading
import time
import urllib.request
from urllib.parse import urlsplit

import pytest

from jobmeter.errors import UnavailableError
from tests.support import certificates
from tests.support.frames import records, samples
from tests.support.processes import ServerProcess, run_cli, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_BEGINNING = b"POST /api/put HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
_CPU = {"metric": "cpu.usage", "job": "j1", "replica": "worker-0", "node": "n1"}


def _get(url, **options):
    with urllib.request.urlopen(url, timeout=30, **options) as answer:
        return answer.read()


def _connection(server):
    parts = urlsplit(server.url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)


def test_a_server_says_where_it_is_and_leaves_nothing_behind(tmp_path):
    data = tmp_path / "deep" / "data"
    data.parent.mkdir()
    with running(data) as server:
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        for name in ("server.json", "admin.key", "secret.key"):
            assert stat.S_IMODE((data / name).stat().st_mode) == 0o600
        assert set(server.note) == {"pid", "url", "started"}
        assert set(server.admin) == {"id", "token", "access_key_id", "access_key_secret", "role", "project"}
        assert (server.admin["role"], server.admin["project"]) == ("admin", None)
        line = wait_until(lambda: server.output().strip())  # it follows the note
        assert re.fullmatch(
            rf"Jobmeter listens at http://127\.0\.0\.1:\d+ \(administrator's key: {data}/admin\.key\)", line
        )
        assert _get(f"{server.url}/readyz") == b"ready\n"
        key = server.admin
        assert server.stop() == 0
        assert not (data / "server.json").exists()
    with running(data) as again:
        assert again.admin == key
        assert json.loads(again.request("GET", "/whoami").body)["id"] == key["id"]
        assert again.stop(signal.SIGINT) == 0


def test_a_second_server_on_a_folder_is_refused(tmp_path):
    with running(tmp_path / "data") as server:
        second = run_cli("serve", "--data", str(server.data), "--port", "0")
        assert second.returncode == 1
        assert second.stderr == (
            f"jobmeter: another server uses the data folder {server.data} "
            f"(process {server.process.pid}, {server.url})\n"
        )
        assert _get(f"{server.url}/healthz") == b"ok\n"


def test_a_port_is_not_shared(tmp_path):
    with running(tmp_path / "data") as server:
        port = str(urlsplit(server.url).port)
        second = run_cli("serve", "--data", str(tmp_path / "other"), "--port", port)
        assert second.returncode == 1
        assert second.stderr == f"jobmeter: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "256.1.1.1"), "--host '256.1.1.1' is not an address of this machine"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1 port 0: Cannot assign requested address"),
        (("--store", "redis://x"), "there is no store 'redis'"),
        (("--registry", "mysql://x/y"), "registry"),
        (("--tls-cert", "/nowhere.pem"), "--tls-cert and --tls-key belong together"),
        (("--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"), "cannot use /nowhere.pem"),
    ],
)
def test_a_wrong_start_is_one_line(tmp_path, options, message):
    ran = run_cli("serve", "--data", str(tmp_path / "data"), "--port", "0", *options)
    assert ran.returncode == 1
    assert ran.stderr.startswith("jobmeter: ")
    assert message in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    ran = run_cli("serve", "--data", str(tmp_path / "file" / "data"), "--port", "0")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert f"the data folder {tmp_path}/file/data cannot be used" in ran.stderr


def test_an_idle_server_leaves_and_health_checks_do_not_keep_it(tmp_path):
    server = ServerProcess(tmp_path / "data", "--idle-exit", "2").start()
    try:
        url = server.url

        def left():
            with contextlib.suppress(OSError, http.client.HTTPException):
                _get(f"{url}/readyz")
            return server.process.poll() is not None

        wait_until(left)
        assert server.process.poll() == 0
    finally:
        server.stop(signal.SIGKILL)


def test_a_stopping_server_answers_what_it_took(tmp_path):
    with running(tmp_path / "data") as server:
        connection = _connection(server)
        body = samples([(_CPU, [(int(time.time() * 1000), 1.0)])])
        headers = {
            "Authorization": f"Bearer {server.admin['token']}",
            "Content-Type": "application/vnd.jobmeter.frames",
            "Content-Length": str(len(body)),
        }
        connection.putrequest("POST", "/api/jobmeter/v1/ingest")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert connection.sock.recv(1024).startswith(b"HTTP/1.1 100"), "the request was taken, its body is asked for"
        connection.send(body[:20])
        server.process.send_signal(signal.SIGTERM)
        connection.send(body[20:])
        answer = connection.getresponse()
        assert json.loads(answer.read())["accepted"] == 1
        connection.close()
        assert server.process.wait(60) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", connection.port), timeout=5)
    with running(tmp_path / "data") as again:
        assert json.loads(again.request("GET", "/status").body)["rows"]["samples"] == 1


def test_kill_9_of_the_pid_that_is_printed_ends_everything(tmp_path):
    with running(tmp_path / "data") as server:
        pid = server.note["pid"]
        assert pid == server.process.pid
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
        assert children.stdout.split() == []
        port = urlsplit(server.url).port
        os.kill(pid, signal.SIGKILL)
        server.process.wait(30)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        assert (tmp_path / "data" / "server.json").exists()
    with running(tmp_path / "data") as again:
        assert again.note["pid"] == again.process.pid


def test_a_host_of_any_form_and_a_path_as_sent(tmp_path):
    with running(tmp_path / "data") as server:
        address = urlsplit(server.url).netloc
        for target, host, status in (
            ("/healthz", server.url, 200),
            ("/healthz", f"{server.url}/", 200),
            (f"{server.url}/healthz", address, 200),
            ("/api/jobmeter/v1/health", f"http://{address}/", 200),
            ("//healthz", address, 404),
            ("/%68ealthz", address, 404),
            ("/api/v1/jobs//metrics?MetricType=GpuCoreUsage", address, 400),
        ):
            with socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=10) as client:
                client.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                assert client.recv(100).split()[1] == str(status).encode(), (target, host)


def test_a_slow_or_broken_client_does_not_block_others(tmp_path):
    with running(tmp_path / "data") as server:
        address = ("127.0.0.1", urlsplit(server.url).port)
        head = b"POST /api/jobmeter/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"
        open_ones = [socket.create_connection(address) for _ in range(400)]
        for client in open_ones:
            client.sendall(head)
        assert _get(f"{server.url}/readyz") == b"ready\n"
        for client in open_ones:
            client.close()
        for _ in range(20):
            assert _get(f"{server.url}/readyz") == b"ready\n"


def test_many_at_once_are_answered(tmp_path):
    with running(tmp_path / "data") as server:
        failures = []

        def ask():
            transport = server.transport()
            try:
                for _ in range(20):
                    transport.request("GET", "/api/jobmeter/v1/jobs")
            except UnavailableError as error:
                failures.append(error)
            finally:
                transport.close()

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_exports_arrive_whole_over_a_socket(tmp_path):
    now = int(time.time() * 1000) // 1000 * 1000
    points = [(now - 1000 * n, float(n)) for n in range(3000)]
    with running(tmp_path / "data") as server:
        assert server.ingest(samples([(_CPU, points)])).json()["accepted"] == 3000
        path = f"/jobs/j1/metrics?metric=cpu.usage&step=1s&start={now - 3_600_000}&end={now + 1}"
        rows = server.request("GET", f"{path}&format=csv").body.decode().splitlines()
        assert rows[0] == "time,replica,device,value"
        assert [(int(row.split(",")[0]), float(row.split(",")[3])) for row in rows[1:]] == points[::-1]
        assert server.request("GET", f"{path}&format=parquet").body[:4] == b"PAR1"
        connection = _connection(server)
        connection.request(
            "HEAD", f"/api/jobmeter/v1{path}&format=csv", headers={"X-Auth-Token": server.admin["token"]}
        )
        assert connection.getresponse().read() == b""
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_tls_from_1_2_on(tmp_path):
    made = certificates.make(tmp_path)
    options = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    with running(tmp_path / "data", *options) as server:
        assert server.url.startswith("https://127.0.0.1:")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=str(made.ca))
            context.minimum_version = context.maximum_version = version
            assert _get(f"{server.url}/healthz", context=context) == b"ok\n"


def test_a_backup_of_a_running_server_comes_back(tmp_path):
    now = int(time.time() * 1000) // 1000 * 1000
    points = [(now - 1000 * n, float(n)) for n in range(1000)]
    record = {"jobs": [{"job_id": "j1", "name": "first", "start": now - 1_000_000}]}
    question = f"/jobs/j1/metrics?metric=cpu.usage&step=1s&start={now - 1_000_000}&end={now + 1}&format=csv"
    target = tmp_path / "backup"
    with running(tmp_path / "data") as server:
        server.ingest(records(record) + samples([(_CPU, points)]))
        key = json.loads(server.request("POST", "/keys", {"name": "other", "role": "reader"}).body)
        expected = server.request("GET", question).body
        ran = run_cli("backup", str(target), "--data", str(server.data))
        assert (ran.returncode, ran.stdout) == (0, f"copied to {target}\n"), ran.stderr
        again = run_cli("backup", str(target), "--data", str(server.data))
        assert (again.returncode, again.stderr) == (1, f"jobmeter: {target} is not empty\n")
        busy = run_cli("restore", str(target), "--data", str(server.data))
        assert busy.returncode == 1
        assert "another server uses the data folder" in busy.stderr
    full = run_cli("restore", str(target), "--data", str(tmp_path / "data"))
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    nothing = run_cli("restore", str(tmp_path), "--data", str(tmp_path / "new"))
    assert nothing.returncode == 1
    assert "contains no server backup" in nothing.stderr
    shutil.rmtree(tmp_path / "data")
    ran = run_cli("restore", str(target), "--data", str(tmp_path / "data"))
    assert ran.returncode == 0, ran.stderr
    with running(tmp_path / "data") as server:
        assert server.request("GET", question).body == expected
        assert json.loads(server.request("GET", "/jobs/j1").body)["job"]["name"] == "first"
        request = urllib.request.Request(
            f"{server.url}/api/jobmeter/v1/whoami", headers={"Authorization": f"Bearer {key['token']}"}
        )
        assert json.loads(_get(request))["id"] == key["id"]


def test_the_lock_of_a_folder_is_free_after_a_crash(tmp_path):
    with running(tmp_path / "data") as server:
        server.stop(signal.SIGKILL)
        with (server.data / "server.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _half_sent(server):
    """Open a connection on which the server waits for the rest of a body."""
    client = socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=30)
    client.sendall(
        b"POST /api/jobmeter/v1/ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n"
        b"Content-Type: application/vnd.jobmeter.frames\r\nAuthorization: Bearer %b\r\n\r\n"
        % server.admin["token"].encode()
    )
    assert client.recv(100).startswith(b"HTTP/1.1 100 ")
    return client


def test_a_server_ends_after_its_grace_time_whatever_is_under_way(tmp_path):
    """Some bodies never end, and a write hangs on a lock of the registry."""
    with running(tmp_path / "data", environment={"JOBMETER_GRACE_SECONDS": "1"}) as server:
        body = samples([(_CPU, [(int(time.time() * 1000), 1.0)])])
        assert server.ingest(body).json()["accepted"] == 1
        clients = [_half_sent(server) for _ in range(2)]
        with contextlib.closing(sqlite3.connect(server.data / "registry.db", isolation_level=None)) as registry:
            registry.execute("BEGIN EXCLUSIVE")

            def ask():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    server.call("POST", "/api/jobmeter/v1/keys", b'{"name":"k","role":"reader"}')

            asking = threading.Thread(target=ask)
            asking.start()
            while not re.search(r'jobmeter_work{lane="(read|write)"} [1-9]', _get(f"{server.url}/metrics").decode()):
                pass
            assert server.stop() == 1
            asking.join()
        assert "still running 1 seconds after the stop signal" in server.output()
        for client in clients:
            client.close()
    with running(tmp_path / "data") as again:
        assert json.loads(again.request("GET", "/status").body)["rows"]["samples"] == 1


def _listens(server):
    try:
        socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # the socket closed before the server accepted this connection, so it was not refused
        return True
    return True


def test_a_second_signal_ends_a_server_now(tmp_path):
    with running(tmp_path / "data", environment={"JOBMETER_GRACE_SECONDS": "3600"}) as server, _half_sent(server):
        server.process.send_signal(signal.SIGTERM)
        while _listens(server):
            pass
        assert server.process.poll() is None
        assert server.stop() == 128 + signal.SIGTERM


def test_strangers_connections_leave_place_for_health_and_for_writers(tmp_path):
    """Open 1,100 foreign connections, idle or half sent, on a server with 1,024 descriptors."""
    server = ServerProcess(tmp_path / "data", "--opentsdb-port", "0", descriptors=1_024)
    opened: list[socket.socket] = []
    _allow(4_096)
    try:
        server.start()
        address = ("127.0.0.1", urlsplit(server.url).port)
        lines = ("127.0.0.1", server.note["opentsdb_port"])
        for number in range(1_100):
            opened.append(socket.create_connection(address))
            if number % 3 == 0:
                opened[-1].sendall(_BEGINNING[: 20 + number % 42])
            if number % 4 == 0:
                opened.append(socket.create_connection(lines))
        transport = server.transport()
        for _ in range(20):
            assert _get(f"{server.url}/healthz") == b"ok\n"
            body = samples([(_CPU, [(int(time.time() * 1000), 1.0)])])
            assert server.ingest(body).json()["accepted"] == 1
            assert transport.request("GET", "/api/jobmeter/v1/whoami").status == 200
        transport.close()
        metrics = _get(f"{server.url}/metrics").decode()
        assert float(re.findall(r'jobmeter_connections{port="http"} (\S+)', metrics)[0]) <= 512
        assert float(re.findall(r'closed_total{port="http",reason="replaced"} (\S+)', metrics)[0]) >= 500
        assert float(re.findall(r'jobmeter_connections{port="telnet"} (\S+)', metrics)[0]) <= 128
        # The connection supervisor writes the log once a second.
        wait_until(lambda: "idle connections were closed to make room" in server.output())
        assert server.stop() == 0
    finally:
        for client in opened:
            client.close()
        if server.process.poll() is None:
            server.kill()


def _allow(descriptors):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, hard), hard))
