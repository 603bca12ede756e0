"""Tests of commands in their own processes, against a real server."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import start

FIELDS = {"id", "name", "type", "state", "project", "user", "created", "start", "end"}


@pytest.fixture(scope="module")
def job(reach, tmp_path_factory):
    """Store a job with two replicas and samples until now, and return its id."""
    now = int(time.time() * 1000)
    lines = [
        {
            "job_id": "train-1",
            "name": "resnet",
            "type": "PyTorchJob",
            "state": "Running",
            "user": "lin",
            "start": now - 60_000,
        }
    ]
    for replica in range(2):
        for second in range(60):
            at = {
                "job_id": "train-1",
                "replica": f"worker-{replica}",
                "node": "n1",
                "time": now - 60_000 + second * 1000,
            }
            lines.append({**at, "metric": "cpu.usage", "value": 1 + replica})
            lines.append({**at, "metric": "memory.usage", "value": 2**30})
            lines.append({**at, "metric": "gpu.utilization", "device": f"gpu{replica}", "value": 0.5})
    file = tmp_path_factory.mktemp("job") / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    api, token = reach
    output = start("import", str(file), "--server", api.transport.server, "--key", token)
    assert output.status == 0, output.err
    return "train-1"


def test_jobs(jobmeter, job):
    [listed] = json.loads(jobmeter("jobs", "--json").out)
    assert set(listed) >= FIELDS
    assert (listed["id"], listed["name"], listed["user"], listed["end"]) == (job, "resnet", "lin", None)
    row = next(line for line in jobmeter("jobs").out.splitlines() if line.startswith(job))
    for part in ("resnet", "PyTorchJob", "Running", "lin", "3.00 cores", "2.0 GiB", "50.0%"):
        assert part in row
    assert json.loads(jobmeter("jobs", "--json", "--state", "Failed").out) == []
    assert [
        row["id"] for row in json.loads(jobmeter("jobs", "--json", "--type", "PyTorchJob", "--user", "lin").out)
    ] == [job]


def test_show(jobmeter, job):
    text = jobmeter("show", job).out
    for part in (job, "resnet", "worker-0", "worker-1", "gpu1", "cpu.usage", "jobmeter metrics train-1"):
        assert part in text
    document = json.loads(jobmeter("show", job, "--json").out)
    assert [replica["name"] for replica in document["replicas"]] == ["worker-0", "worker-1"]
    assert {device["device"] for device in document["devices"]} == {"gpu0", "gpu1"}
    assert "cpu.usage" in {metric["metric"] for metric in document["summary"]["metrics"]}


def test_events(jobmeter, job):
    [event, *replicas] = json.loads(jobmeter("events", job, "--json").out)
    assert (event["job"], event["replica"], event["source"], event["reason"]) == (job, "", "state", "Running")
    assert {(event["replica"], event["reason"]) for event in replicas} == {
        ("worker-0", "Running"),
        ("worker-1", "Running"),
    }
    lines = jobmeter("events", job, "--limit", "2").out.splitlines()
    assert lines[0].split() == ["time", "replica", "type", "source", "level", "reason", "message"]
    assert lines[-1] == "the newest 2 of 3 events: --limit 3 shows all"
    assert jobmeter("events", job, "--level", "error").out == "no event matches\n"


def test_metrics_in_every_form(jobmeter, job, tmp_path):
    ask = ("metrics", job, "--metric", "cpu.usage", "--step", "30s")
    table = jobmeter(*ask).out
    assert "worker-0" in table
    assert "█" in table
    points = json.loads(jobmeter(*ask, "--json").out)
    assert {(point["replica"], point["value"]) for point in points} == {("worker-0", 1), ("worker-1", 2)}
    header, *rows = jobmeter(*ask, "--format", "csv").out.split()
    assert header == "time,replica,device,value"
    assert len(rows) == len(points)
    several = jobmeter(*ask, "--metric", "memory.usage", "--format", "csv").out.split()
    assert several[0] == "metric,time,replica,device,value"
    file = tmp_path / "a.parquet"
    assert jobmeter(*ask, "--format", "parquet", "--output", str(file)).out == ""
    import pandas as pd

    frame = pd.read_parquet(file)
    assert list(frame["value"]) == [point["value"] for point in points]
    assert json.loads(jobmeter(*ask, "--by", "job", "--aggregate", "sum", "--json").out)[0]["value"] == 3


def test_top_prints_once_without_a_terminal(jobmeter, job):
    jobs = jobmeter("top").out
    assert "1 running job" in jobs
    assert "3.00 cores" in jobs
    parts = jobmeter("top", job, "--once").out
    assert [line.split()[0] for line in parts.splitlines() if line.startswith("worker")] == [
        "worker-0", "worker-1", "worker-0", "worker-1",
    ]  # fmt: skip


def test_output_elsewhere_than_on_a_terminal_is_plain(jobmeter, job):
    for verb in (("jobs",), ("show", job), ("top",), ("metrics", job, "--metric", "cpu.usage"), ("catalog",)):
        assert "\x1b" not in jobmeter(*verb).out


@pytest.mark.parametrize(
    "words", [("show", "nobody"), ("metrics", "nobody", "--metric", "cpu.usage"), ("top", "nobody")]
)
def test_an_unknown_job_is_one_line_and_status_1(jobmeter, words):
    result = jobmeter(*words)
    assert result.status == 1
    assert result.out == ""
    assert result.err.startswith("jobmeter: ")
    assert "nobody" in result.err
    assert result.err.count("\n") == 1


def test_a_bad_step_a_bad_metric_and_a_bad_key_are_reported(jobmeter, job):
    assert "step" in jobmeter("metrics", job, "--metric", "cpu.usage", "--step", "0").err
    assert "gpu.spin" in jobmeter("metrics", job, "--metric", "gpu.spin").err
    refused = jobmeter("jobs", "--key", "wrong")
    assert refused.status == 1
    assert refused.err.count("\n") == 1


def test_wrong_usage_is_status_2(jobmeter):
    assert jobmeter("metrics").status == 2
    assert jobmeter("jobs", "--limit", "none").status == 2
    assert jobmeter("nonsense").status == 2


def test_no_server_there_is_reported(tmp_path):
    output = start("jobs", "--server", "http://127.0.0.1:9")
    assert output.status == 1
    assert output.err.startswith("jobmeter: no answer from http://127.0.0.1:9")
    assert output.err.count("\n") == 1


def test_the_catalogue_needs_no_server(tmp_path):
    output = start("catalog", "--json", JOBMETER_DATA=str(tmp_path / "none"), JOBMETER_SERVER="http://127.0.0.1:9")
    assert output.status == 0
    assert not (tmp_path / "none").exists()


def test_a_reading_verb_starts_a_server_and_the_next_one_finds_it(tmp_path):
    environment = {"JOBMETER_DATA": str(tmp_path / "data")}
    try:
        first = start("jobs", **environment)
        assert first.out == "no jobs yet: `jobmeter demo` shows one; yours: `jobmeter run -- COMMAND`\n", first.err
        described = json.loads((tmp_path / "data" / "server.json").read_text())
        assert (tmp_path / "data" / "admin.key").stat().st_mode & 0o777 == 0o600
        assert start("jobs", "--json", **environment).out.strip() == "[]"
        assert json.loads((tmp_path / "data" / "server.json").read_text()) == described
        with socket.create_connection(("127.0.0.1", urlsplit(described["url"]).port or 0), timeout=5):
            pass
    finally:
        file = tmp_path / "data" / "server.json"
        if file.exists():
            os.kill(json.loads(file.read_text())["pid"], 15)


def test_a_pipe_that_closes_early_is_no_failure():
    command = f"{sys.executable} -m jobmeter catalog | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("how", ["q", "interrupt"])
def test_top_on_a_terminal_is_live_until_q_or_an_interrupt(reach, job, how):
    api, token = reach
    command = [sys.executable, "-m", "jobmeter", "top", "--interval", "200ms"]
    environment = {**os.environ, "JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token, "TERM": "xterm"}
    screen, program = pty.openpty()
    with (
        subprocess.Popen(command, env=environment, stdin=program, stdout=program, stderr=program) as process,
        contextlib.ExitStack() as leaving,
    ):
        leaving.callback(process.kill)
        os.close(program)
        shown = b""
        while b"3.00 cores" not in shown:
            shown += os.read(screen, 65_536)
        if how == "q":
            os.write(screen, b"q")
        else:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal's code after a program leaves its screen
            while more := os.read(screen, 65_536):
                shown += more
        process.wait(30)
    os.close(screen)
    assert process.returncode == 0
    assert b"train-1" in shown
    assert b"Traceback" not in shown


def test_an_import_on_a_terminal_shows_its_progress(reach, tmp_path):
    api, token = reach
    file = tmp_path / "a.csv"
    now = int(time.time() * 1000)
    file.write_text("job_id,metric,time,value\n" + "".join(f"bar,cpu.usage,{now - n},1\n" for n in range(50_000)))
    command = [sys.executable, "-m", "jobmeter", "import", str(file), "--batch-rows", "5000"]
    environment = {**os.environ, "JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token, "TERM": "xterm"}
    screen, program = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=program) as process:
        os.close(program)
        shown = b""
        with contextlib.suppress(OSError):
            while more := os.read(screen, 65_536):
                shown += more
        out = process.communicate()[0]
    os.close(screen)
    assert process.returncode == 0
    assert b"importing" in shown
    assert out.startswith(b"imported 50,000 rows of 1 job in ")
