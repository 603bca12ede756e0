"""Metrics of programs with ``jobmeter.log``, StatsD and OpenTelemetry reach the server, and never harm a program."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.ingest_server import ingest_server
from tests.support.processes import running
from tests.support.waiting import wait_until

REPORTS = """
import os, jobmeter
jobmeter.meta(model="tiny", flops_per_token=6e9)
for step in range(50):
    jobmeter.log(step=step, loss=1 / (step + 1), tokens=128)
jobmeter.event("resumed", step=7)
with jobmeter.span("checkpoint", step=50):
    pass
"""


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


def start(server, folder, *words, options=()):
    command = [sys.executable, "-m", "jobmeter", "run", "--data", str(folder), "--server", server.url, "--key", "k"]
    return subprocess.Popen(
        [*command, "--job-id", "j1", *options, "--", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(server, folder, *words, options=()):
    """Run a command as a job. Return its exit status, and the standard error of the command and the run."""
    with start(server, folder, *words, options=options) as program:
        _, errors = program.communicate(timeout=100)
    return program.returncode, errors


def test_the_numbers_of_a_run_have_their_steps(server, tmp_path):
    status, errors = run(server, tmp_path, sys.executable, "-c", REPORTS)
    assert status == 0, errors
    losses, steps = server.values("app.loss", job="j1"), server.values("app.step", job="j1")
    by_time = dict(steps)
    assert losses
    assert all(value == 1 / (by_time[time] + 1) for time, value in losses)
    assert losses[-1][1] == 1 / 50
    dropped = server.values("app.dropped", job="j1")
    stored = len(losses) + len(server.values("app.tokens", job="j1")) + 1
    assert stored + (dropped[-1][1] if dropped else 0) == 50 * 2 + 1
    assert len(server.values("app.checkpoint_seconds", job="j1")) == 1
    events = {event["reason"]: event["message"] for event in server.events}
    assert events["Resumed"] == "step 7"
    assert events["Checkpoint"].startswith("checkpoint took ")
    (facts,) = [job["extra"]["program"] for job in server.jobs if "extra" in job]
    assert facts == {"model": "tiny", "flops_per_token": 6e9}


EIGHT = """
import json, os, socket, threading, time, urllib.request
import jobmeter

rank = int(os.environ["RANK"])
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
own.connect(os.environ["JOBMETER_SOCKET"])
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
there = (os.environ["STATSD_HOST"], int(os.environ["STATSD_PORT"]))
for step in range(10):
    jobmeter.log(step=step, loss=rank + step)
    own.send(b"unix_gauge:%d|g|#step:%d" % (rank + step, step))
    port.sendto(b"udp_total:1|c", there)
    point = {"timeUnixNano": str(time.time_ns()), "asDouble": rank + step, "attributes": [
        {"key": "step", "value": {"intValue": str(step)}}]}
    metric = {"name": "otel.loss", "gauge": {"dataPoints": [point]}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    sent = urllib.request.Request(os.environ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"], json.dumps(body).encode(),
                                  {"Content-Type": "application/json"})
    while True:
        try:
            urllib.request.urlopen(sent, timeout=20).close()
            break
        except urllib.error.HTTPError as error:
            # The run has not scanned its processes yet, or these attempts took its share of the CPU: clients retry.
            assert error.code in {403, 429}, error.code
            threading.Event().wait(0.05)
    threading.Event().wait(0.02)
"""


def test_eight_ranks_report_in_every_way_at_once(server, tmp_path):
    options = ("--replicas", "8", "--statsd", "0", "--otlp", "0")
    status, errors = run(server, tmp_path, sys.executable, "-c", EIGHT, options=options)
    assert status == 0, errors
    for rank in range(8):
        wanted = [float(rank + step) for step in range(10)]
        for metric in ("app.loss", "app.unix_gauge", "app.otel.loss"):
            assert [value for _, value in server.values(metric, replica=f"worker-{rank}")] == wanted, (metric, rank)
        assert server.values("app.udp_total", replica=f"worker-{rank}")[-1][1] > 0
        steps = [value for _, value in server.values("app.step", replica=f"worker-{rank}")]
        assert set(steps) == {float(step) for step in range(10)}


def test_neither_a_missing_server_nor_a_full_disk_changes_the_program(tmp_path):
    code = "import jobmeter, sys\nfor i in range(100_000): jobmeter.log(step=i, loss=i)\nprint('done')\nsys.exit(9)"
    for data in (tmp_path / "d", "/dev/full/d"):
        command = ["jobmeter", "run", "--data", str(data), "--server", "http://127.0.0.1:9", "--key", "k", "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", *command, "--", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.returncode, done.stdout) == (9, "done\n"), done.stderr


ATTACHED = """
import sys, time
sys.stdin.readline()
import jobmeter
for step in range(5):
    jobmeter.log(step=step, loss=step)
assert jobmeter.flush(20)
print("sent", flush=True)
sys.stdin.readline()
"""


def test_a_program_that_runs_already_is_found_when_it_is_attached_to(server, tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}
    with subprocess.Popen(
        [sys.executable, "-c", ATTACHED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean
    ) as program:
        measuring = [sys.executable, "-m", "jobmeter", "run", "--pid", str(program.pid), "--job-id", "att"]
        reached = ["--server", server.url, "--key", "k", "--data", str(tmp_path), "--interval", "0.1s"]
        with subprocess.Popen([*measuring, *reached], stderr=subprocess.PIPE, text=True) as run:
            wait_until(lambda: server.values("process.count", job="att"))
            assert program.stdin
            assert program.stdout
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "sent\n"
            wait_until(lambda: len(server.values("app.loss", job="att")) == 5)
            program.stdin.write("\n")
            program.stdin.close()
            program.wait()
            run.communicate(timeout=60)
    assert [value for _, value in server.values("app.step", job="att")] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_an_agent_attributes_by_process_and_may_be_killed(server, tmp_path):
    place = str(tmp_path / "a.sock")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}
    code = """
import sys, jobmeter
for line in sys.stdin:
    jobmeter.log(step=int(line), loss=int(line))
    jobmeter.flush(20)
    print(line.strip(), flush=True)
sys.exit(3)
"""
    own = {**clean, "JOBMETER_SOCKET": place, "JOBMETER_JOB_ID": "mine", "JOBMETER_REPLICA": "worker-2"}
    agent = [sys.executable, "-m", "jobmeter", "agent", "--server", server.url, "--key", "k", "--interval", "1s"]
    agent += ["--spool", str(tmp_path / "spool"), "--socket", place, "--no-kernel-log", "--no-journal", "--node", "n"]
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own
    ) as program:
        sent, answered = program.stdin, program.stdout
        assert sent is not None
        assert answered is not None

        def report(step):
            sent.write(f"{step}\n")
            sent.flush()
            assert answered.readline() == f"{step}\n"

        def arrived(step):
            return step in [value for _, value in server.values("app.loss", job="mine")]

        for step in (1, 2):
            with subprocess.Popen(agent, stderr=subprocess.DEVNULL, env=clean) as measuring:
                wait_until(lambda: Path(place).exists())
                wait_until(lambda: server.values("agent.cpu.time"))
                report(step)
                wait_until(partial(arrived, step))
                measuring.kill()
        report(3)
        sent.close()
        assert program.wait() == 3
    assert {sample.series.replica for sample in server.samples if sample.series.job == "mine"} == {"worker-2"}


def test_lines_and_event_files_of_a_program_need_no_change_to_it(server, tmp_path):
    written = tmp_path / "events.out.tfevents.1.host"
    code = f"""
import struct, sys, threading, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.unit.wire.test_tfevents import START, event, record, simple
with open({str(written)!r}, "wb") as file:
    file.write(START)
    for step in range(3):
        print("{{'loss': %s, 'learning_rate': 0.1, 'epoch': 0.5}}" % step, flush=True)
        print(f"S={{step}} mine={{step}}", flush=True)
        file.write(record(event(time.time(), step, simple("val/acc", step))))
        file.flush()
        threading.Event().wait(0.1)
    input()
"""
    own = ("--parse", r"S=(?P<step>\d+) mine=(?P<mine>\d+)")
    with start(server, tmp_path / "d", sys.executable, "-c", code, options=own) as program:
        wait_until(lambda: len(server.values("app.val_acc", job="j1")) == 3)
        _, errors = program.communicate("\n", timeout=60)
    assert program.returncode == 0, errors
    for metric in ("app.loss", "app.mine", "app.val_acc"):
        assert [value for _, value in server.values(metric, job="j1")] == [0.0, 1.0, 2.0], metric
    assert {value for _, value in server.values("app.step", job="j1")} == {0.0, 1.0, 2.0}


@pytest.mark.slow
def test_eight_ranks_have_curves_in_all_places(tmp_path):
    with running(tmp_path / "data") as real:
        own = {"JOBMETER_SERVER": real.url, "JOBMETER_KEY": real.token, "JOBMETER_DATA": str(tmp_path / "d")}
        environment = {**os.environ, **own}

        def jobmeter(*words):
            command = [sys.executable, "-m", "jobmeter", *words]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        ports = ("--replicas", "8", "--statsd", "0", "--otlp", "0")
        jobmeter("run", "--job-id", "j8", *ports, "--", sys.executable, "-c", EIGHT)
        shown = jobmeter("show", "j8")
        native = json.loads(jobmeter("metrics", "j8", "--metric", "app.loss", "--by", "replica", "--json"))
        huawei = json.loads(real.transport().request("GET", "/v2/default/training-jobs/j8/ft-metrics").body)
        alibaba = json.loads(real.transport().request("GET", "/api/v1/trainingjobs/j8/latestmetrics").body)
    assert "numbers of the program, the last at step 9" in shown
    names = ("loss", "unix_gauge", "otel.loss", "udp_total")
    assert all(f"app.{name} " in shown for name in names)
    assert {row["replica"] for row in native} == {f"worker-{rank}" for rank in range(8)}
    curves = {curve["name_en"]: curve["data"] for curve in huawei["data"]["metrics"]}
    assert all(curves[name] for name in names)
    assert curves["loss"][-1]["step"] == 9
    assert {one["Name"] for one in alibaba["Metrics"]} >= {*names, "step"}
