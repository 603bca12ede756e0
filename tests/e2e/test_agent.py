"""``jobmeter agent`` as a real process: what the server gets, and what happens when it is away."""

import os
import signal
import subprocess
import sys

import pytest

from jobmeter.model.catalog import CATALOG
from tests.e2e.ingest_server import ingest_server
from tests.unit.wire.straight_reader import read_body
from tests.waiting import wait_until

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
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as agent:
        wait_until(lambda: sum(path.stat().st_size for path in (tmp_path / "s").glob("*.frames")) > 5000)
        agent.kill()
    once(server.url, tmp_path / "s")
    assert len(server.values("node.load1")) >= 2


def test_a_refusal_of_one_frame_does_not_stop_the_others(server, tmp_path):
    refusal = b'{"error": {"code": "invalid_request", "message": "no", "field": "value"}, "request_id": "X"}'
    server.refuse = lambda body: (400, {}, refusal) if any(kind == 2 for kind, _ in read_body(body)) else None
    done = once(server.url, tmp_path / "spool")
    assert done.returncode == 1
    assert "set aside: value: no" in done.stderr
    assert server.values("node.load1")
    (kept,) = (tmp_path / "spool" / "rejected").glob("*.frames")
    assert [kind for kind, _ in read_body(kept.read_bytes())] == [2]
    assert kept.with_suffix(".txt").read_text() == "value: no\n"


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
