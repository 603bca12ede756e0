"""Tests of ``jobmeter agent`` as a real process: its deliveries, and its behaviour while the server is away."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from jobmeter.model.catalog import CATALOG
from tests.e2e.ingest_server import ingest_server
from tests.support.waiting import wait_until
from tests.unit.wire.straight_reader import read_body

AGENT = [sys.executable, "-m", "jobmeter", "agent"]


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


def once(url, spool, *options, **environment):
    command = [*AGENT, "--once", "--server", url, "--key", "secret", "--spool", str(spool), *options]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )


def test_one_measurement_holds_the_node_and_itself(server, tmp_path):
    done = once(server.url, tmp_path / "spool", "--node", "n7", "--cluster", "c7", "--resource-group", "rg 7")
    assert done.returncode == 0, done.stderr
    names = {sample.series.metric for sample in server.samples}
    assert {"node.cpu.time", "node.memory.available", "node.load1", "agent.cpu.time"} <= names
    assert names <= set(CATALOG)
    assert {(s.series.node, s.series.cluster) for s in server.samples} == {("n7", "c7")}
    assert {s.value for s in server.samples if s.series.metric == "agent.collect.success"} == {1.0}
    (node,) = server.nodes
    assert (node["name"], node["cluster"], node["resource_group"]) == ("n7", "c7", "rg 7")
    path, headers = server.headers[0]
    assert path == "/api/jobmeter/v1/ingest"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/vnd.jobmeter.frames"
    assert list((tmp_path / "spool").glob("*.frames")) == []


def test_a_job_of_this_node_is_found_and_measured(server, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "JOBMETER_JOB_ID": "found", "JOBMETER_REPLICA": "worker-3", "SECRET": "hidden"},
    ) as job:
        once(server.url, tmp_path / "spool")
        job.communicate(b"\n")
    assert server.values("memory.usage", job="found", replica="worker-3")
    (record,) = [job for job in server.jobs if job["job_id"] == "found"]
    assert record["replicas"][0]["name"] == "worker-3"
    assert b"hidden" not in b"".join(server.bodies)


def test_what_could_not_be_delivered_is_sent_by_the_next_start(server, tmp_path):
    done = once("http://127.0.0.1:9", tmp_path / "spool", "--node", "first")
    assert done.returncode == 1
    assert "not delivered" in done.stderr
    assert once(server.url, tmp_path / "spool", "--node", "second").returncode == 0
    nodes = [s.series.node for s in server.samples]
    assert nodes.index("first") < nodes.index("second")


def test_it_ends_cleanly_on_sigterm_with_a_last_sample(server, tmp_path):
    command = [*AGENT, "--server", server.url, "--key", "k", "--interval", "3600s", "--spool", str(tmp_path / "s")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as agent:
        wait_until(lambda: server.values("node.load1"))
        agent.send_signal(signal.SIGTERM)
        _, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    assert len(server.values("node.load1")) == 2
    assert server.values("node.filesystem.size")


def test_it_ends_on_sigterm_while_the_server_is_away_and_keeps_everything(server, tmp_path):
    command = [
        *AGENT,
        "--server",
        "http://127.0.0.1:9",
        "--key",
        "k",
        "--interval",
        "1s",
        "--spool",
        str(tmp_path / "s"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as agent:
        wait_until(lambda: any(path.stat().st_size for path in (tmp_path / "s").glob("*.frames")))
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)
    assert agent.returncode == 0
    once(server.url, tmp_path / "s")
    assert len(server.values("node.load1")) >= 2


def test_kill_9_of_the_agent_loses_nothing_that_it_had_measured(server, tmp_path):
    command = [
        *AGENT,
        "--server",
        "http://127.0.0.1:9",
        "--key",
        "k",
        "--interval",
        "1s",
        "--spool",
        str(tmp_path / "s"),
        "--no-kernel-log",
        "--no-journal",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as agent:
        # more than one scan writes
        wait_until(lambda: sum(path.stat().st_size for path in (tmp_path / "s").glob("*.frames")) > 12_000)
        agent.kill()
    once(server.url, tmp_path / "s")
    assert len(server.values("node.load1")) >= 2


SPINS = """
import sys, threading, time
from pathlib import Path
folder, pause = Path(sys.argv[1]), threading.Event()
while not (folder / "end").exists():
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    pause.wait(0.02)
(folder / "used").write_text(str(time.process_time()))
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_an_agent_that_another_one_follows_loses_no_sample_and_doubles_none(server, tmp_path, ending):
    """Replace the agent like systemd: the new binary starts after the old process has ended, on the same spool."""
    command = [*AGENT, "--server", server.url, "--key", "k", "--interval", "1s", "--node", "n", "--spool"]
    command += [str(tmp_path / "s"), "--no-kernel-log", "--no-journal"]

    def points():
        return dict.fromkeys(server.values("cpu.time", job="long"))

    with (tmp_path / "log").open("wb") as log, ExitStack() as stack:

        def started(arguments, **variables):
            process = stack.enter_context(subprocess.Popen(arguments, stderr=log, env={**os.environ, **variables}))
            stack.callback(process.kill)
            return process

        first = started(command)
        wait_until(lambda: server.values("node.load1"))
        job = started([sys.executable, "-c", SPINS, str(tmp_path)], JOBMETER_JOB_ID="long")
        wait_until(lambda: len(points()) >= 4)
        first.send_signal(ending)
        first.wait(60)
        before = points()
        second = started(command)
        wait_until(lambda: len(points()) >= len(before) + 3)
        (tmp_path / "end").touch()
        job.wait(60)
        used = float((tmp_path / "used").read_text())
        wait_until(lambda: list(points())[-1][1] >= used - 0.15, "the last use of the job")
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    samples = [(one.series, one.time_ms, one.value) for one in server.samples]
    if ending == signal.SIGTERM:
        assert len(samples) == len(set(samples))
    # After a kill, an agent resends an unacknowledged frame unchanged, so that its samples count once.
    assert len({sample[:2] for sample in samples}) == len(set(samples))
    times, values = zip(*points(), strict=True)
    assert list(values) == sorted(values)
    assert values[0] == 0
    assert values[-1] == pytest.approx(used, rel=0.05, abs=0.15)
    told = [one["replicas"][0] for one in server.jobs if one["job_id"] == "long"]
    assert {one["name"] for one in told} == {"worker-0"}
    assert {one.get("attempt", 0) for one in told} == {0}
    assert max(one["start"] for one in told) - min(one["start"] for one in told) <= 20
    dropped = {one.value for one in server.samples if one.series.metric == "agent.dropped"}
    assert dropped <= {0.0}
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert times[0] <= min(one["start"] for one in told) + 20


SHORT = "import sys, time\nwhile time.process_time() < 0.3: pass"


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel reports what processes used to root alone")
def test_jobs_that_are_shorter_than_the_interval_are_measured_or_counted_as_missed(server, tmp_path):
    """The agent scans at its start, and an hour later."""
    (tmp_path / "rules.toml").write_text('[[job]]\ncommand = "*work-*"\njob = "short-{2}"\n')
    command = [*AGENT, "--server", server.url, "--key", "k", "--interval", "3600s", "--spool", str(tmp_path / "s")]
    jobs = {f"short-{os.getpid()}-{number}" for number in range(6)}
    with subprocess.Popen([*command, "--job-rules", str(tmp_path / "rules.toml")]) as agent:
        try:
            wait_until(lambda: server.values("node.load1"))
            if server.values("agent.processes.events")[-1][1] == 0:
                pytest.skip("the kernel reports no processes here")
            for job in jobs:
                subprocess.run([sys.executable, "-c", SHORT, job.replace("short", "work")], check=True)
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(timeout=60)
    found = jobs.intersection(job["job_id"] for job in server.jobs)
    missed = server.values("agent.processes.missed")[-1][1]
    assert len(found) + missed >= len(jobs)
    assert found, "each runs for 0.3 s of CPU time, and the agent looks within 0.1 s"
    for job in found:
        values = [value for _, value in server.values("cpu.time", job=job)]
        assert values[0] == 0.0
        assert values[-1] == pytest.approx(0.3, abs=0.1)


def test_a_refusal_of_one_frame_does_not_stop_the_others(server, tmp_path):
    refusal = b'{"error": {"code": "invalid_request", "message": "no", "field": "value"}, "request_id": "X"}'
    server.refuse = lambda body: (400, {}, refusal) if any(kind == 2 for kind, _ in read_body(body)) else None
    # The records of the node and of the job are in separate frames. This machine may run jobs of other tests too.
    job = f"beside-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        env={**os.environ, "JOBMETER_JOB_ID": job},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as beside:
        assert beside.stdout
        beside.stdout.readline()
        done = once(server.url, tmp_path / "spool")
        beside.communicate(b"")
    assert done.returncode == 1, done.stderr
    assert "which is quarantined: value: no" in done.stderr
    assert server.values("node.load1")
    files = list((tmp_path / "spool" / "rejected").glob("*.frames"))
    frames = [frame for file in files for frame in read_body(file.read_bytes())]
    assert {kind for kind, _ in frames} == {2}
    assert len(frames) == len(files) >= 2
    assert {file.with_suffix(".txt").read_text() for file in files} == {"value: no\n"}
    records = [json.loads(read) for _, read in frames]
    assert [node["name"] for record in records for node in record.get("nodes", [])] == [socket.gethostname()]
    assert job in {one["job_id"] for record in records for one in record.get("jobs", [])}
    assert list((tmp_path / "spool").glob("*.frames")) == []


def test_two_agents_do_not_share_a_spool(server, tmp_path):
    command = [*AGENT, "--server", server.url, "--key", "k", "--spool", str(tmp_path / "s")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as agent:
        wait_until(lambda: server.values("node.load1"))
        second = once(server.url, tmp_path / "s")
        agent.terminate()
    assert second.returncode == 1
    assert "another process uses the spool" in second.stderr


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--interval", "10ms"], "--interval"),
        (["--interval", "soon"], "--interval"),
        (["--node", "a b"], "--node"),
        (["--cluster", "../x"], "--cluster"),
        (["--server", "localhost:1"], "--server"),
        (["--ca-file", "/no/such/file"], "--ca-file"),
    ],
)
def test_a_wrong_option_is_named(server, tmp_path, options, word):
    done = once(server.url, tmp_path / "spool", *options)
    assert done.returncode == 2
    assert word in done.stderr
    assert server.bodies == []


def test_the_server_and_the_key_come_from_the_environment_too(server, tmp_path):
    done = subprocess.run(
        [*AGENT, "--once", "--spool", str(tmp_path / "s")],
        env={**os.environ, "JOBMETER_SERVER": server.url, "JOBMETER_KEY": "from-the-environment"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert server.headers[0][1]["Authorization"] == "Bearer from-the-environment"
