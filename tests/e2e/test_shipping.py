"""Tests of shipping log lines to external sinks: a real server, real receivers, the vendor's own SDK and examples."""

import json
import re
import shlex
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
import zstandard

from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import make_logs_frame
from tests.support.frames import records
from tests.support.processes import ServerProcess, running
from tests.support.receivers import receiving
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "alibaba" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "eas.py"
GROUP = "eas-r-asdasdasd****"
PROJECT, STORE = "eas-r-asdasdasd-sls", "access_log"
SOURCES = 3

pytestmark = pytest.mark.slow


def _settings(folder, text):
    file = folder / "sinks.toml"
    file.write_text(f'allow = ["127.0.0.1"]\n\n[[sink]]\nproject = "{PROJECT}"\nlogstore = "{STORE}"\n{text}\n')
    return {"JOBMETER_SINKS": str(file)}


def _file_sink(folder, rotate=64 * 2**20):
    return _settings(folder, f'kind = "file"\ndirectory = "{folder / "shipped"}"\nrotate_bytes = {rotate}')


def _shipped(folder):
    """Return every line of a sink's files, ordered by the number in their names."""
    found = []
    for path in sorted((folder / "shipped").glob("*.jsonl*"), key=lambda path: path.name.split(".")[0]):
        if path.suffix == ".part":
            continue
        content = path.read_bytes()
        if path.suffix == ".zst":
            content = zstandard.ZstdDecompressor().decompress(content, max_output_size=2**28)
        found += [json.loads(line) for line in content.splitlines()]
    return found


class Writer:
    """Sends numbered lines of several sources, and retries each until it is acknowledged."""

    def __init__(self, server):
        self.server = server
        self.numbers = count()
        self.began = time.time_ns()
        self.sent = []

    def declare(self):
        jobs = [{"job_id": f"j{at}", "resource_group": GROUP, "state": "Running"} for at in range(SOURCES)]
        assert self.server.ingest(records({"jobs": jobs})).status == 200

    def send(self, lines=20, retry=True):
        at = next(self.numbers)
        now_ns = self.began + at * 1_000_000
        batch = [
            LogLine(time_ns=now_ns + place, text=f"{at * lines + place}", job=f"j{source}", replica="worker-0")
            for place in range(lines)
            for source in range(SOURCES)
        ]
        body = make_logs_frame(batch)

        def acknowledged():
            try:
                return self.server.ingest(body).status == 200
            except (OSError, ValueError):
                return False

        if retry:
            wait_until(acknowledged, "a receipt")
        self.sent += [at * lines + place for place in range(lines)]


def _in_order(found, sent):
    """Check that every line of a source appears first in its order. Return the number of repeated lines."""
    again = 0
    for source in range(SOURCES):
        own = [int(line["text"]) for line in found if line["job"] == f"j{source}"]
        first = list(dict.fromkeys(own))
        assert first == sent
        again += len(own) - len(first)
    return again


def _create(server, group=GROUP):
    wanted = {"resource_group": group, "sink_project": PROJECT, "logstore": STORE}
    made = server.request("POST", "/shippers", wanted)
    assert made.status == 200, made.body
    return made.json()["id"]


def _shipper(server, shipper):
    return server.request("GET", f"/shippers/{shipper}").json()


def _jobmeter(server, *arguments):
    ran = subprocess.run(
        [sys.executable, "-m", "jobmeter", *arguments, "--server", server.url, "--key", server.token],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _wait_shipped(server, shipper, lines):
    wait_until(lambda: _shipper(server, shipper)["shipped"] == lines, "all of them")


def test_lines_reach_files_that_are_rotated_and_the_lag_is_reported(tmp_path):
    with running(tmp_path / "data", environment=_file_sink(tmp_path, rotate=20_000)) as server:
        writer = Writer(server)
        writer.declare()
        out = _jobmeter(server, "shippers", "create", GROUP, "--to", f"{PROJECT}/{STORE}", "--json")
        shipper = json.loads(out)["id"]
        for sent in (10, 20):  # a file is rotated between two batches
            for _ in range(10):
                writer.send()
            _wait_shipped(server, shipper, sent * 20 * SOURCES)
        assert _in_order(_shipped(tmp_path), writer.sent) == 0
        # The sink compresses files after the lines.
        wait_until(lambda: len(list((tmp_path / "shipped").glob("*.zst"))) >= 2, "two whole files")
        assert "shipping" in _jobmeter(server, "shippers", "list")
        assert re.search(r"waiting +0 lines", _jobmeter(server, "shippers", "show", GROUP))
        text = server.call("GET", "/metrics").body.decode()
        assert f'jobmeter_shipper_lag_lines{{shipper="{shipper}"}} 0.0' in text
        assert f'jobmeter_shipper_shipped_total{{shipper="{shipper}"}} 1200.0' in text
        assert "0 waiting lines not shipped" in _jobmeter(server, "shippers", "delete", GROUP)
        assert json.loads(_jobmeter(server, "shippers", "list", "--json")) == []


def test_lines_of_jobs_whose_group_is_recorded_late_are_shipped_in_their_order(tmp_path):
    with running(tmp_path / "data", environment=_file_sink(tmp_path)) as server:
        shipper = _create(server)
        writer = Writer(server)
        for _ in range(60):  # more than one page of lines
            writer.send()
        assert _shipper(server, shipper)["waiting"] == 0
        writer.declare()
        for _ in range(5):
            writer.send()
        writer.declare()
        _wait_shipped(server, shipper, len(writer.sent) * SOURCES)
        assert _in_order(_shipped(tmp_path), writer.sent) == 0
        reasons = [one["reason"] for one in server.request("GET", "/events?type=shipper").json()["events"]]
        assert reasons == ["ShipperCreated"]
        assert json.loads(_jobmeter(server, "events", "--type", "shipper", "--json"))[0]["object"]["name"] == shipper


def test_server_and_sink_are_killed_in_turn_and_every_line_arrives_in_order(tmp_path):
    """The sink is a separate process that appends received lines to a file. SIGKILL ends both in turn."""
    sink = SinkProcess(tmp_path)
    sink.start()
    settings = _settings(tmp_path, f'kind = "loki"\nurl = "http://127.0.0.1:{sink.port}"')
    server = ServerProcess(tmp_path / "data", environment=settings)
    server.start()
    try:
        writer = Writer(server)
        writer.declare()
        _create(server)
        for round_ in range(12):
            writer.send()
            if round_ % 4 == 1:
                sink.kill()
            elif round_ % 4 == 3:
                server.kill()
                server.start()
                sink.start()
        wait_until(lambda: sink.complete(writer.sent), "every line")
        again = _in_order(sink.lines(), writer.sent)
    finally:
        server.kill()
        sink.kill()
    # The number is only printed: any number of repeated lines is allowed.
    print(f"{SOURCES * len(writer.sent)} lines, {again} of them more than once")


class SinkProcess:
    """Process of ``tests/e2e/loki_receiver.py``, which keeps its port over restarts."""

    def __init__(self, folder):
        self.file = folder / "taken.jsonl"
        self.note = folder / "sink.port"
        self.port = 0
        self.process = None

    def start(self):
        if self.process is not None:
            return
        self.note.unlink(missing_ok=True)
        script = Path(__file__).parent / "loki_receiver.py"
        self.process = subprocess.Popen([sys.executable, script, str(self.file), str(self.note), str(self.port)])
        wait_until(lambda: self.note.exists() and self.note.read_text().endswith("\n"), "the sink")
        self.port = int(self.note.read_text())

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lines(self):
        if not self.file.exists():
            return []
        whole = self.file.read_bytes().rpartition(b"\n")[0]
        found = []
        for body in map(json.loads, whole.splitlines()):
            for stream in body["streams"]:
                found += [{"job": stream["stream"]["job"], "text": text} for _, text, _ in stream["values"]]
        return found

    def complete(self, sent):
        own = {(line["job"], int(line["text"])) for line in self.lines()}
        return len(own) == SOURCES * len(sent)


def test_a_sink_that_is_away_is_reported_and_has_everything_when_it_is_back(tmp_path):
    with receiving(lambda taken: (503, {}, b"not now")) as receiver:
        settings = _settings(tmp_path, f'kind = "loki"\nurl = "{receiver.url}"')
        with running(tmp_path / "data", environment=settings) as server:
            writer = Writer(server)
            writer.declare()
            shipper = _create(server)
            writer.send()
            state = wait_until(lambda: (found := _shipper(server, shipper))["state"] == "failing" and found)
            assert state["error"] == "127.0.0.1 answered 503 not now"
            assert state["waiting"] == 60
            assert state["lag_seconds"] >= 0
            receiver.answering = lambda taken: (204, {}, b"")
            wait_until(lambda: _shipper(server, shipper)["waiting"] == 0, "the rest")
            assert _shipper(server, shipper)["state"] == "shipping"
            assert server.process.poll() is None


def _ask(server, *asks):
    key = {name: server.admin[name] for name in ("access_key_id", "access_key_secret")}
    config = {"endpoint": server.url, **key}
    given = [{"config": config, "operation": name, "path": path, "request": request} for name, path, request in asks]
    ran = subprocess.run(
        [PYTHON, SCRIPT], input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_vendors_own_sdk(tmp_path):
    if not PYTHON.exists():
        pytest.skip("needs the environment .venvs/alibaba: make sdk")
    path = ["cn-shanghai", GROUP]
    wanted = {"ProjectName": PROJECT, "LogStore": STORE}
    with running(tmp_path / "data", environment=_file_sink(tmp_path)) as server:
        before, made, again, unknown, described = _ask(
            server,
            ("describe_resource_log", path, None),
            ("create_resource_log", path, wanted),
            ("create_resource_log", path, wanted),
            ("create_resource_log", path, {"ProjectName": "p", "LogStore": "l"}),
            ("describe_resource_log", path, None),
        )
        assert before == {"error": "ClientException", "code": "ResourceLog.NotFound"}
        assert unknown == {"error": "ClientException", "code": "InvalidParameter.LogStoreNotFound"}
        assert made["body"]["Message"] == again["body"]["Message"]
        assert described["body"]["Status"] == "ResourceReady"
        assert {name: described["body"][name] for name in wanted} == wanted
        writer = Writer(server)
        writer.declare()
        writer.send()
        wait_until(lambda: len(_shipped(tmp_path)) == 60, "the lines")
        described, gone, after = _ask(
            server,
            ("describe_resource_log", path, None),
            ("delete_resource_log", path, None),
            ("delete_resource_log", path, None),
        )
        assert described["body"]["Message"].startswith("60 lines shipped")
        assert "0 waiting lines were not shipped" in gone["body"]["Message"]
        assert gone["body"]["RequestId"]
        assert after["code"] == "ResourceLog.NotFound"


# The vendor's own examples, word for word.
ENABLE = """\
curl -X POST https://api.aliyun.com/api/eas/2021-07-01/CreateResourceLog \\
-H "Authorization: Bearer $DASHSCOPE_API_KEY" \\
-H "Content-Type: application/json" \\
-d '{
  "ClusterId": "cn-shanghai",
  "ResourceId": "eas-r-asdasdasd****",
  "body": {
    "ProjectName": "eas-r-asdasdasd-sls",
    "LogStore": "access_log"
  }
}'
"""
DESCRIBE = """\
curl -X GET 'https://api.aliyun.com/api/eas/2021-07-01/DescribeResourceLog?ClusterId=cn-shanghai&ResourceId=eas-r-asdas****' \\
-H 'Authorization: Bearer $DASHSCOPE_API_KEY' \\
-H 'Content-Type: application/json'
"""  # noqa: E501 - word for word
DISABLE = """\
curl -X DELETE \\
  'https://api.aliyun.com/api/eas/2021-07-01/DeleteResourceLog?ClusterId=cn-shanghai&ResourceId=eas-r-asdas****' \\
  -H "Authorization: Bearer $DASHSCOPE_API_KEY"
"""


def _curl(server, example, group=GROUP):
    """Return the answer to an example with its host and key replaced. Some examples quote these against a shell."""
    text = example.replace("https://api.aliyun.com", server.url).replace("eas-r-asdas****", group)
    words = [word.replace("$DASHSCOPE_API_KEY", server.token) for word in shlex.split(text.replace("\\\n", " "))]
    ran = subprocess.run(
        [*words, "-sS", "-w", "\n%{http_code}"], capture_output=True, text=True, timeout=60, check=True
    )
    body, _, status = ran.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_the_vendors_own_examples(tmp_path):
    with running(tmp_path / "data", environment=_file_sink(tmp_path)) as server:
        status, body = _curl(server, ENABLE)
        assert (status, sorted(body)) == (200, ["Message", "RequestId"])
        status, body = _curl(server, DESCRIBE)
        assert status == 200
        assert (body["ProjectName"], body["LogStore"], body["Status"]) == (PROJECT, STORE, "ResourceReady")
        status, body = _curl(server, DISABLE)
        assert (status, sorted(body)) == (200, ["Message", "RequestId"])
        assert _curl(server, DESCRIBE)[0] == 404
        reader = server.request("POST", "/keys", {"name": "r", "role": "reader"}).json()["token"]
        server.token = reader
        status, body = _curl(server, ENABLE)
        assert (status, body["Code"]) == (403, "UnauthorizedOperation")
        server.token = "wrong"
        assert _curl(server, DESCRIBE)[0] == 401
