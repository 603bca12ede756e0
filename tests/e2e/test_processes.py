"""Tests of ``jobmeter serve --processes``: several processes answer like one, and survive the end of others."""

import base64
import http.client
import json
import os
import re
import signal
import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from jobmeter.examples.acs3 import KeyPair, sign
from jobmeter.model.time import SystemClock
from tests.e2e.alibaba import ask, needs_current
from tests.e2e.test_crash import Sender, check
from tests.support import certificates
from tests.support.frames import FRAMES, row, samples
from tests.support.processes import API, ServerProcess, run_cli, running
from tests.support.waiting import SECONDS, wait_until

pytestmark = pytest.mark.slow
CASES = sorted((Path(__file__).parents[1] / "unit" / "dialects").glob("**/cases/*.json"))
NATIVE = (
    *("/whoami", "/jobs", "/jobs/replayed", "/jobs/nobody", "/jobs/replayed/latest", "/nodes", "/projects"),
    *("/metrics", "/keys", "/health", "/openapi.json", "/docs", "/findings", "/alerts", "/nowhere", "/jobs/%2F"),
    *("/jobs/replayed/metrics?metric=cpu.usage&start=1000&end=601000", "/jobs?state=odd", "/jobs?limit=-1"),
    *("/jobs/replayed/samples?metric=cpu.usage", "/jobs/replayed/logs", "/jobs/replayed/events", "//jobs"),
)
_RANDOM = re.compile(
    rb"\bkey-[0-9a-f]+|JMAK\w+|jmt_[\w-]+|\bdlc[a-z0-9]{13}\b|\b[0-9a-fA-F]{16,64}\b"
    rb"|[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
)
_COUNTS = re.compile(rb'(?<="value":")[^"]*')
"""Values of the server's own metrics, which depend on the moment."""
_EVALUATED = re.compile(rb'"health":"\w+"|"evaluationTime":[^,}]*|"lastEvaluation":"[^"]*"')
"""Facts of rules that depend on the moment of their last evaluation."""
_MOMENTS = re.compile(
    rb"20\d\d-\d\d-\d\d[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?|\d{8}T\d{6,9}|\d{8,}(?:\.\d+)?"
    rb'|(?<="[dD]uration":)\d+'  # of running jobs
)


def workers(server: ServerProcess) -> list[int]:
    return server.children()


def open_files(pid: int) -> dict[str, str]:
    """Return the target of each descriptor of a process."""
    files = {}
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            files[one.name] = str(one.readlink())
    return files


def sockets(pid: int) -> int:
    """Return the number of open sockets of a process."""
    links = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            links.append(str(one.readlink()))
    return sum(link.startswith("socket:") for link in links)


def connections_to_each(server: ServerProcess) -> list[http.client.HTTPConnection]:
    """Open connections, at least one to each worker."""
    pids = workers(server)
    assert len(pids) > 1
    before = {pid: sockets(pid) for pid in pids}
    found: list[http.client.HTTPConnection] = []

    def reached() -> bool:
        found.append(http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS))
        found[-1].connect()
        return all(sockets(pid) > before[pid] for pid in pids)

    wait_until(reached, "a connection to each worker")
    return found


def status(connection: http.client.HTTPConnection, path: str, headers: dict[str, str], method: str = "GET") -> int:
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def request_path(target: str) -> str:
    return target.partition("?")[0]


def steady(text: bytes) -> bytes:
    """Replace random values and times in a text, so that answers can be compared."""
    return _MOMENTS.sub(b"X", _RANDOM.sub(b"X", text))


def replayed(server: ServerProcess) -> list[tuple[str, int, list[tuple[str, bytes]], bytes]]:
    """Send the recorded requests. Return the method and path, status, headers and body of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    credential = {"Authorization": f"Bearer {server.token}"}
    calls = [("GET", API + path, b"", credential) for path in NATIVE]
    calls += [(method, API + "/jobs/replayed", b"", credential) for method in ("HEAD", "OPTIONS", "PUT")]
    calls += [("GET", API + "/jobs", b"", {}), ("GET", "/", b"", {}), ("GET", "/healthz", b"", {})]
    for path in CASES:
        request = json.loads(path.read_text())["request"]
        body = base64.b64decode(request["base64"]) if "base64" in request else request.get("body", "")
        body = json.dumps(body).encode() if not isinstance(body, str | bytes) else body
        body = body.encode() if isinstance(body, str) else body
        query = f"?{request['query']}" if request.get("query") else ""
        headers = {**request.get("headers", {}), **credential}
        calls.append((request.get("method", "GET"), request["path"] + query, body, headers))
    found = []
    for method, target, body, headers in calls:
        if not target.isascii() or not target.isprintable() or " " in target:
            continue
        names = {name: value for name, value in headers.items() if name.lower() not in {"content-length", "host"}}
        connection.request(method, target, body or None, {**names, "Host": "meter.example"})
        answer = connection.getresponse()
        content = steady(answer.read())
        if request_path(target).endswith("/rules"):
            content = _EVALUATED.sub(b"X", content)
        if request_path(target) == "/api/stats":
            content = _COUNTS.sub(b"X", content)
        own = [
            (name, steady(value.encode()))
            for name, value in answer.getheaders()
            if name not in {"date", "content-length"}
        ]
        found.append((f"{method} {target}", answer.status, own, content))
    connection.close()
    return found


def test_recorded_requests_have_the_same_answers_from_any_number_of_processes(tmp_path):
    points = [(1_000 + 15_000 * number, number / 100) for number in range(40)]
    body = samples([row("cpu.usage", points, job="replayed", replica="worker-0", node="n1")])
    answers: list[list[tuple[str, int, list[tuple[str, bytes]], bytes]]] = []
    for count in (1, 1, 3):
        with running(tmp_path / str(len(answers)), "--processes", str(count)) as server:
            assert len(workers(server)) == (count if count > 1 else 0)
            assert server.ingest(body).status == 200
            answers.append(replayed(server))
            if count > 1:
                now_ms = int(time.time()) * 1000
                recent = [(now_ms - 15_000 * number, number / 100) for number in range(20)]
                body_now = samples(
                    [row("gpu.utilization", recent, job="live", replica="worker-0", node="n1", device="0")]
                )
                assert server.ingest(body_now).status == 200
                connections = connections_to_each(server)
                for path in live(server, now_ms):
                    different = set[bytes]().union(*(until_own(server, opened, path) for opened in connections))
                    assert len(different) == 1, path
                    assert b"worker-0" in different.pop()
                for opened in connections:
                    opened.close()
            assert server.stop() == 0
    one, again, *others = answers
    comparable = [mine == same for mine, same in zip(one, again, strict=True)]
    assert comparable.count(True) > 0.97 * len(CASES), "what differs between two runs of one process says nothing"
    assert {status for _, status, _, _ in one} >= {200, 400, 401, 404}
    for other in others:
        pairs = list(zip(comparable, one, other, strict=True))
        assert [(mine, theirs) for is_same, mine, theirs in pairs if is_same and mine != theirs] == []
        assert [mine[:2] for _, mine, _ in pairs] == [theirs[:2] for _, _, theirs in pairs]


def live(server: ServerProcess, now_ms: int) -> list[str]:
    """Return paths of live questions about the job ``live``, in our own API and in vendor APIs."""
    start, end = (datetime.fromtimestamp((now_ms - ago) / 1000, UTC).strftime("%FT%TZ") for ago in (600_000, 0))
    query = urlencode(
        {"query": 'jobmeter_gpu_utilization_ratio{job_id="live",project="default"}', "time": now_ms / 1000}
    )
    return [
        f"{API}/jobs/live/metrics?metric=gpu.utilization&start={now_ms - 600_000}&end={now_ms}",
        f"/prometheus/api/v1/query?{query}",
        f"/api/v1/jobs/live/metrics?{urlencode({'MetricType': 'GpuCoreUsage', 'StartTime': start, 'EndTime': end})}",
    ]


def until_own(server: ServerProcess, connection: http.client.HTTPConnection, path: str) -> set[bytes]:
    """Return the distinct answers on a connection until its worker answers without the storage process."""
    found, before = set(), worker_answers(server)

    def is_own() -> bool:
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        assert answer.status == 200
        found.add(_RANDOM.sub(b"X", answer.read()))
        return worker_answers(server) > before

    wait_until(is_own, "an answer of the worker itself")
    return found


def worker_answers(server: ServerProcess) -> float:
    return float(_metrics(server).partition("\njobmeter_worker_answers_total ")[2].partition("\n")[0])


def wait_for_more_answers(server: ServerProcess, before: float) -> None:
    wait_until(lambda: worker_answers(server) > before, "the workers' counts")


def test_a_wrong_number_of_processes_is_one_line(tmp_path):
    for text in ("0", "65", "-1", "many"):
        ran = run_cli("serve", "--data", str(tmp_path / "data"), "--port", "0", "--processes", text)
        assert ran.returncode == 1
        assert ran.stderr == f"jobmeter: JOBMETER_PROCESSES must be auto or a whole number from 1 to 64, got '{text}'\n"


def test_a_killed_worker_is_replaced_and_acknowledged_samples_survive(tmp_path):
    base = int(time.time() * 1000) // 3_600_000 * 3_600_000 - 48 * 3_600_000
    acknowledged: list[int] = []
    with running(tmp_path / "data", "--processes", "2") as server:
        before = workers(server)
        shown = run_cli("status", "--server", f"http://127.0.0.1:{server.port}", "--key", server.token)
        assert "1 and 2 workers" in shown.stdout
        sender = Sender(server, base, 0, 0)
        sender.start()
        wait_until(lambda: len(sender.acknowledged) >= 5)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: pid not in workers(server) and len(workers(server)) == 2, "the replacement")  # noqa: B023
            reached = len(sender.acknowledged)
            if not sender.is_alive():  # the broken connection belonged to the sender
                acknowledged += sender.acknowledged
                sender = Sender(server, base, 0, sender.number)
                sender.start()
                reached = 0
            wait_until(lambda: len(sender.acknowledged) > reached)  # noqa: B023
        metrics = server.call("GET", "/metrics").body.decode()
        assert "jobmeter_worker_restarts_total 2.0" in metrics
        wait_until(lambda: "jobmeter_workers 2.0" in server.call("GET", "/metrics").body.decode())
        assert server.stop() == 0
        sender.join()
        acknowledged += sender.acknowledged
        assert f"worker process {before[0]} ended with status -9" in server.output()
        server.start()
        check(server, base, 0, acknowledged)


def test_a_killed_storage_process_ends_its_workers(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server:
        pids = workers(server)
        assert len(pids) == 2
        port = server.port
        os.kill(server.note["pid"], signal.SIGKILL)
        assert server.process.wait(SECONDS) == -signal.SIGKILL
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the workers' end")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_workers_have_no_descriptors_of_the_storage_process(tmp_path):
    with running(tmp_path / "data", "--processes", "3") as server:
        first = workers(server)
        assert len(first) == 3
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: first[0] not in workers(server) and len(workers(server)) == 3, "the replacement")
        wait_until(lambda: "jobmeter_workers 3.0" in server.call("GET", "/metrics").body.decode())
        listening = open_files(server.process.pid)
        for pid in workers(server):
            files = open_files(pid)
            assert files.pop("0") == os.devnull
            assert not any(str(tmp_path) in target for name, target in files.items() if name not in {"1", "2"})
            shared = {target for target in files.values() if target.startswith("socket:")} & {*listening.values()}
            assert len(shared) == 1, "the listening socket"


@pytest.mark.parametrize("to_all", [False, True])
def test_a_stopping_server_answers_the_requests_that_its_workers_accepted(tmp_path, to_all):
    now_ms = int(time.time() * 1000)
    with running(tmp_path / "data", "--processes", "2") as server:
        pids, connections, port = workers(server), connections_to_each(server), server.port
        body = samples([row("cpu.usage", [(now_ms - 1000, 0.5)], job="j1", replica="worker-0")])
        for connection in connections:
            connection.putrequest("POST", f"{API}/ingest")
            connection.putheader("Authorization", f"Bearer {server.token}")
            connection.putheader("Content-Type", FRAMES)
            connection.putheader("Content-Length", str(len(body)))
            connection.putheader("Expect", "100-continue")
            connection.endheaders()
            assert connection.sock.recv(1024).startswith(b"HTTP/1.1 100"), "the body is requested"
            connection.send(body[:20])
        for pid in (server.process.pid, *(pids if to_all else ())):  # like systemd and Ctrl-C
            os.kill(pid, signal.SIGTERM)
        for connection in connections:
            connection.send(body[20:])
            answer = connection.getresponse()
            assert json.loads(answer.read())["accepted"] == 1
            connection.close()
        assert server.process.wait(SECONDS) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_change_through_one_worker_holds_at_all_workers(tmp_path):
    now_ms = int(time.time() * 1000)
    limits = {"JOBMETER_RATE_LIMITS": "listNodes=0.001:3"}
    with running(tmp_path / "data", "--processes", "2", environment=limits) as server:
        connections = connections_to_each(server)
        admin = {"Authorization": f"Bearer {server.token}"}
        pair = KeyPair(server.admin["access_key_id"], server.admin["access_key_secret"])
        parameters = {"MetricType": "GpuCoreUsage"}
        signed = sign(
            *("GET", f"127.0.0.1:{server.port}", "/api/v1/jobs/j1/metrics", parameters),
            *(("2020-12-03", "GetJobMetrics"), pair, SystemClock()),
        )
        path = f"/api/v1/jobs/j1/metrics?{urlencode(parameters)}"
        body = samples([row("gpu.utilization", [(now_ms - 1000, 0.5)], job="j1", replica="worker-0")])
        assert server.ingest(body).status == 200

        replays = [status(one, path, signed) for one in connections]
        assert replays == [200, *([400] * (len(connections) - 1))], "a signature holds once, wherever"

        rated = sorted(status(one, f"{API}/nodes", admin) for one in (*connections, *connections, *connections))
        assert rated == [200] * 3 + [429] * (len(rated) - 3)

        path = f"{API}/jobs/j1/metrics?metric=gpu.utilization&start={now_ms - 600_000}&end={now_ms}&step=1s"
        for one in connections:
            until_own(server, one, path)
        for number in range(2, 5):
            body = samples([row("gpu.utilization", [(now_ms - 1000 * number, 0.5)], job="j1", replica="worker-0")])
            assert server.ingest(body).status == 200
            for one in connections:
                (found,) = until_own(server, one, path)
                assert len(json.loads(found)["lines"][0]["points"]) == number

        key = json.loads(server.request("POST", "/keys", {"name": "k", "role": "reader"}).body)
        own = {"Authorization": f"Bearer {key['token']}"}
        assert {status(one, f"{API}/jobs/j1", own) for one in connections} == {200}
        server.request("DELETE", f"/keys/{key['id']}")
        assert {status(one, f"{API}/jobs/j1", own) for one in connections} == {401}

        assert {status(one, f"{API}/jobs/j1", admin) for one in connections} == {200}
        server.request("DELETE", "/jobs/j1")
        assert {status(one, f"{API}/jobs/j1", admin) for one in connections} == {404}

        for one in connections:
            one.close()
        wait_until(lambda: 'jobmeter_connections{port="http"} 1.0' in _metrics(server))
        resident = sum(_resident(pid) for pid in (server.process.pid, *workers(server)))
        shown = float(_metrics(server).partition("\nprocess_resident_memory_bytes ")[2].partition("\n")[0])
        assert shown == pytest.approx(resident, rel=0.2)


@needs_current
def test_workers_answer_the_vendors_sdk_and_accept_each_signature_once(tmp_path):
    now_ms = int(time.time()) * 1000
    points = [(now_ms - 15_000 * number, 0.5) for number in range(1, 20)]
    rows = [row(metric, points, job="dlc1", replica="worker-0") for metric in ("gpu.utilization", "gpu.sm.active")]
    with running(tmp_path / "data", "--processes", "3") as server:
        assert server.ingest(samples(rows)).status == 200
        key = json.loads(server.request("POST", "/keys", {"name": "sdk", "role": "reader"}).body)
        config = {"endpoint": server.url, **{name: key[name] for name in ("access_key_id", "access_key_secret")}}
        metrics = {"call": "get_job_metrics", "args": ["dlc1"], "request": {"MetricType": "GpuCoreUsage"}}
        listed = {"Namespace": "acs_pai_dlc", "MetricName": "JOB_GPU_SM_UTIL", "Dimensions": '[{"jobId": "dlc1"}]'}
        form = {"product": "cms", "call": "describe_metric_list", "request": listed}
        asks = [{**metrics, "config": config}, {**form, "config": {**config, "signature_algorithm": "v2"}}]
        for asked in asks:
            before = worker_answers(server)
            answers = ask(*([asked] * 12))
            assert [answer.get("statusCode") for answer in answers] == [200] * 12
            wait_for_more_answers(server, before)
        once = {"nonce": "once", "date": datetime.now(UTC).strftime("%FT%TZ")}
        replays = ask(*([{**asked, **once} for asked in asks] * 4))
        assert [answer.get("statusCode") for answer in replays[:1]] == [200]
        assert {answer.get("code") for answer in replays[1:]} == {"SignatureNonceUsed"}
        server.request("DELETE", f"/keys/{key['id']}")
        assert {answer.get("code") for answer in ask(*(asks * 4))} == {"InvalidAccessKeyId.Inactive"}


def _metrics(server: ServerProcess) -> str:
    return server.call("GET", "/metrics").body.decode()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_workers_speak_tls_and_carry_large_bodies_both_ways(tmp_path):
    made = certificates.make(tmp_path)
    now_ms = int(time.time() * 1000) // 1000 * 1000
    count = 60_000
    points = [(now_ms - 86_400_000 + 1000 * number, number / count) for number in range(count)]
    body = samples([row("app.number", points, job="j1", replica="worker-0")])
    options = ("--processes", "2", "--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    with running(tmp_path / "data", *options) as server:
        context = ssl.create_default_context(cafile=str(made.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=SECONDS, context=context)
        credential = {"Authorization": f"Bearer {server.token}"}
        connection.request("POST", f"{API}/ingest", body, {**credential, "Content-Type": FRAMES})
        answer = connection.getresponse()
        assert json.loads(answer.read())["accepted"] == count
        span = urlencode({"metric": "app.number", "start": now_ms - 86_400_000, "end": now_ms})
        connection.request("GET", f"{API}/jobs/j1/samples?{span}&format=csv", headers=credential)
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.read().count(b"\n") >= count
        connection.close()
        assert server.stop() == 0


def test_idle_half_sent_and_closed_connections_do_not_block_other_clients(tmp_path):
    with running(tmp_path / "data", "--processes", "2") as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for one in idle[:10]:
            one.sendall(b"POST /api/put HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")
        for one in idle[:5]:
            one.close()
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(server.call("GET", f"{API}/jobs").status)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 8
        for one in idle[5:]:
            one.close()
        wait_until(lambda: 'jobmeter_connections{port="http"} 1.0' in _metrics(server))
