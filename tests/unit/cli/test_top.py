import pytest
from tests.unit.cli.test_diagnose import FINDINGS


def value(metric, unit, replica, number, device=""):
    return {
        "metric": metric,
        "unit": unit,
        "replica": replica,
        "node": "n1",
        "device": device,
        "time": 5,
        "value": number,
    }


BUSY = [
    value("cpu.usage", "{core}", "worker-0", 1.25),
    value("cpu.usage", "{core}", "worker-1", 0.5),
    value("memory.usage", "By", "worker-0", 2**30),
    value("gpu.utilization", "1", "worker-0", 0.2, "gpu0"),
    value("gpu.utilization", "1", "worker-0", 0.6, "gpu1"),
    value("gpu.power", "W", "worker-0", 100, "gpu0"),
    value("gpu.power", "W", "worker-0", 150, "gpu1"),
]
JOB = {"id": "busy", "name": "x", "state": "Running", "project": "default", "start": 1_790_000_000_000}


@pytest.fixture
def running(server):
    server.on("/jobs", {"jobs": [{**JOB, "id": "idle"}, JOB], "total": 2})
    server.on("/jobs/busy", {"job": JOB})
    server.on("/jobs/busy/latest", {"values": BUSY})
    server.on("/jobs/idle/latest", {"values": [value("cpu.usage", "{core}", "w", 0.01)]})
    return server


def test_jobs_by_use_with_sums_and_means(running, run):
    lines = run("top", "--once").stdout.splitlines()
    assert "2 running jobs" in lines[0]
    assert lines[1].split() == ["id", "name", "user", "running", "cpu", "memory", "gpu", "power"]
    busy, idle = lines[3], lines[4]
    assert busy.startswith("busy")
    assert all(text in busy for text in ("1.75 cores", "1.0 GiB", "40.0%", "250 W"))
    assert "0.01 cores" in idle
    assert idle.count(" - ") + idle.endswith("-") >= 2


def test_a_job_on_mig_instances_has_their_activity_as_its_use(running, run):
    instances = [
        value("gpu.sm.active", "1", "worker-0", 0.3, "gpu0:1"),
        value("gpu.sm.active", "1", "worker-0", 0.5, "gpu0:2"),
    ]
    running.on("/jobs/busy/latest", {"values": [value("cpu.usage", "{core}", "worker-0", 1.25), *instances]})
    lines = run("top", "--once").stdout.splitlines()
    assert "40.0%" in next(line for line in lines if line.startswith("busy"))
    running.on("/jobs/busy/latest", {"values": [*BUSY, value("gpu.sm.active", "1", "worker-0", 0.9, "gpu0")]})
    assert "40.0%" in next(line for line in run("top", "--once").stdout.splitlines() if line.startswith("busy"))


def test_findings_are_marked_in_the_list_and_unusual_replicas_come_first(running, run):
    found = {"id": "idle", "project": "default", "severity": "critical", "count": 2, "open": 1}
    found |= {"rules": ["gpu_idle_allocated"], "sentence": "2 GPUs are idle"}
    running.on("/jobs", {"jobs": [{**JOB, "id": "idle"}, JOB], "total": 2, "findings": [found]})
    lines = run("top", "--once").stdout.splitlines()
    assert lines[1].split()[:3] == ["id", "name", "finding"]
    assert "critical gpu_idle_allocated" in next(line for line in lines if line.startswith("idle "))
    assert lines[0].endswith("1 with critical findings")
    assert [line.split()[0] for line in lines if line.startswith(("idle ", "busy "))] == ["idle", "busy"]
    assert "gpu_idle_allocated" not in next(line for line in lines if line.startswith("busy "))
    about_all = {**FINDINGS[0], "rule": "slow_input", "severity": "critical", "replicas": ["worker-0", "worker-1"]}
    running.on("/jobs/busy/findings", [about_all, {**FINDINGS[0], "replicas": ["worker-1"]}])
    rows = [line.split()[0] for line in run("top", "busy").stdout.splitlines() if line.startswith("worker")]
    assert rows[:2] == ["worker-1", "worker-0"]


def test_one_job_by_replica_and_device(running, run):
    text = run("top", "busy").stdout
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("worker")}
    assert "0.50 cores" in rows["worker-1"]
    assert [line.split()[2] for line in text.splitlines() if " gpu" in line and line.startswith("worker-0")] == [
        "gpu0",
        "gpu1",
    ]
    assert "60.0%" in text


def test_nothing_runs(server, run):
    server.on("/jobs", lambda asked: (200, {"jobs": [], "total": 0 if "state" in asked.parameters else 4}, {}))
    assert "no running jobs" in run("top").stdout
    server.on("/jobs", {"jobs": [], "total": 0})
    assert "no jobs yet: `jobmeter demo`" in run("top").stdout


def test_an_interval_that_is_none_is_named(run):
    assert "--interval 'x'" in str(run("top", "--interval", "x").exception)


FOUND = {"id": "idle", "project": "default", "severity": "critical", "count": 1, "rules": ["xid"], "open": 1}


def test_open_findings_stand_below_the_jobs_and_above_the_ranks(running, run):
    sentence = "w (n1, gpu2): XID 79: the GPU has fallen off the bus"
    jobs = [{**JOB, "id": "idle"}, JOB]
    running.on("/jobs", {"jobs": jobs, "total": 2, "findings": [{**FOUND, "sentence": sentence}]})
    assert run("top", "--once").stdout.splitlines()[-1] == f"idle: critical: {sentence}"
    running.on("/jobs", {"jobs": jobs, "total": 2, "findings": [{**FOUND, "sentence": sentence, "open": 0}]})
    assert sentence not in run("top", "--once").stdout, "it has passed"
    one = {
        "rule": "xid", "role": "root", "severity": "critical", "confidence": 0.9, "start": 0, "end": 0,
        "subject": {"kind": "device", "name": "n1/gpu2"}, "evidence": [], "advice": "", "source": "",
        "sentence": sentence,
    }  # fmt: skip
    running.on("/jobs/busy/findings", [one])
    lines = run("top", "busy").stdout.splitlines()
    assert lines[1].startswith(f"critical {sentence}")
