"""Jobs of a real Flink that ``jobmeter scheduler flink`` reports, through the vendor's SDK, beside Flink's REST API."""

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.support.flink import Flink, cluster, needs_flink
from tests.support.processes import ServerProcess, run_cli, running
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "alibaba" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "foas.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("flink"),
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]
JVM = "Status.JVM."
OLD = "GarbageCollector.G1_Old_Generation"
EXACT = {
    "lastCheckpointDuration": "job lastCheckpointDuration",
    "lastCheckpointSize": "job lastCheckpointSize",
    "state.state_size": "job lastCheckpointFullSize",
    "state.state_newsize": "job lastCheckpointSize",
    "checkpoints": "job totalNumberOfCheckpoints",
    "numRecordsInPerSecond.rate": "task numRecordsInPerSecond",
    "numRecordsOutPerSecond.rate": "task numRecordsOutPerSecond",
    "buffers.inPoolUsage": "task buffers.inPoolUsage",
    "buffers.outPoolUsage": "task buffers.outPoolUsage",
    "checkpointAlignmentTime": "task checkpointAlignmentTime",
    "watermarkLatency": "task GroupWindowAggregate[5].watermarkLatency",
    "lateRecordsDroppedRate": "task GroupWindowAggregate[5].lateRecordsDroppedRate",
    "numLateRecordsDropped": "task GroupWindowAggregate[5].numLateRecordsDropped",
    "tps.rate": "task Source__events[1].numRecordsOutPerSecond",
    "parserTps.rate": "task Source__events[1].numRecordsOutPerSecond",
    "sink.outTps.rate": "task sums[7]__Writer.numRecordsInPerSecond",
    "rocksdb_get.mean": "task GroupWindowAggregate[5].state_name.window-aggs.valueStateGetLatency_mean",
    "rocksdb_put.mean": "task GroupWindowAggregate[5].state_name.window-aggs.valueStateUpdateLatency_mean",
    f"{JVM}CPU.Usage": f"tm {JVM}CPU.Load",
    f"{JVM}Memory.Heap.Used": f"tm {JVM}Memory.Heap.Used",
    f"{JVM}Memory.NonHeap.Used": f"tm {JVM}Memory.NonHeap.Used",
    f"{JVM}Threads.Count": f"tm {JVM}Threads.Count",
    f"{JVM}GarbageCollector.ConcurrentMarkSweep.Time": f"tm {JVM}{OLD}.Time",
    f"{JVM}GarbageCollector.ConcurrentMarkSweep.Count": f"tm {JVM}{OLD}.Count",
}
"""Metric of Flink for each name of the vendor's table, in Flink's own unit."""
IN_MS = {"taskLatency.sum": "busyTimeMsPerSecond", "waitOutput.sum": "backPressuredTimeMsPerSecond"}


@pytest.fixture(scope="module")
def flink() -> Iterator[Flink]:
    needs_flink()
    with cluster() as found:
        yield found


@pytest.fixture(scope="module")
def jobs(flink: Flink) -> dict[str, str]:
    return flink.submit("windows", "steady", "ends", "fails", "restarts", "recovers")


@pytest.fixture(scope="module")
def server(flink: Flink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    assert flink.url
    with running(tmp_path_factory.mktemp("flink") / "data") as found:
        yield found


def collect(flink: Flink, server: ServerProcess) -> None:
    """Run the collector once, as a user does."""
    done = run_cli(
        *("scheduler", "flink", "--rest", flink.url, "--cluster", "t", "--once"),
        environment={
            "JOBMETER_SERVER": server.url,
            "JOBMETER_KEY": server.token,
            "JOBMETER_DATA": str(server.data.with_name("collector")),
        },
    )
    assert done.returncode == 0, done.stderr


def job_of(server: ServerProcess, job: str) -> dict[str, Any]:
    found: dict[str, Any] = server.call("GET", f"/api/jobmeter/v1/jobs/{job}").json()
    return found


def task_managers(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the replicas of a job without the job manager, which reports checkpoints."""
    return [one for one in found["replicas"] if one["name"] != "jobmanager"]


def foas(server: ServerProcess, job: str, names: list[str], start: int, aggregator: str) -> Any:
    """Return the SDK's answer for these metrics since ``start``, with one point each."""
    queries = [
        {"metric": f"blink.default.{job}.{name}", "downsample": "1h-avg", "granularity": "1h", "aggregator": aggregator}
        for name in names
    ]
    text = json.dumps({"start": start, "end": int(time.time() * 1000), "queries": queries})
    ask = {
        "endpoint": server.url,
        "key": server.admin["access_key_id"],
        "secret": server.admin["access_key_secret"],
        "call": "GetInstanceMetric",
        "set": {"projectName": "default", "jobName": job, "instanceId": -1, "metricJson": text},
    }
    done = subprocess.run(
        [PYTHON, SCRIPT], input=f"{json.dumps(ask)}\n", capture_output=True, text=True, timeout=60, check=True
    )
    answer = json.loads(done.stdout)
    assert answer.get("status", 200) == 200, answer
    return {line["metricName"].split(f".{job}.")[1]: line for line in json.loads(answer["body"])["metrics"]}


def says(flink: Flink, job: str) -> dict[str, list[float]]:
    """Return the values of each metric of a job, its subtasks and its task managers in Flink's REST API."""
    found: dict[str, list[float]] = {}
    paths = [("job", f"/jobs/{job}/metrics")]
    paths += [("task", f"/jobs/{job}/vertices/{one['id']}/metrics") for one in flink.get(f"/jobs/{job}")["vertices"]]
    paths += [("tm", f"/taskmanagers/{one['id']}/metrics") for one in flink.get("/taskmanagers")["taskmanagers"]]
    for kind, path in paths:
        names = [one["id"] for one in flink.get(path) if "latency." not in one["id"]]
        for first in range(0, len(names), 30):
            for one in flink.get(f"{path}?get={','.join(names[first : first + 30])}"):
                name = one["id"].partition(".")[2] if kind == "task" else one["id"]
                with suppress(ValueError):  # some values are words
                    found.setdefault(f"{kind} {name}", []).append(float(one["value"]))
    return found


def test_the_sdk_gets_what_flink_says_at_the_same_moment(
    flink: Flink, server: ServerProcess, jobs: dict[str, str]
) -> None:
    """Flink changes its values only at a collection, so a value that is equal before and after was constant between."""
    job = jobs["windows"]
    wait_until(lambda: says(flink, job).get("task sums[7]__Writer.numRecordsInPerSecond", [0.0])[0] > 0, "windows", 90)

    def same() -> tuple[int, dict[str, list[float]]] | None:
        before, start = says(flink, job), int(time.time() * 1000)
        collect(flink, server)
        after = says(flink, job)
        target = [name.partition(" ")[2] for name in EXACT.values()]
        assert len(target) == len(EXACT)
        steady = all(before.get(name) == after.get(name) for name in EXACT.values())
        return (start, before) if steady and EXACT["rocksdb_get.mean"] in before else None

    taken = wait_until(same, "two equal answers of Flink with a collection between", 120)
    assert taken is not None
    start, expected = taken
    found = {how: foas(server, job, list(EXACT) + list(IN_MS), start, how) for how in ("avg", "max", "sum")}
    functions: dict[str, Callable[[Sequence[float]], float]] = {"avg": fmean, "max": max, "sum": sum}
    for how, function in functions.items():
        for name, theirs in EXACT.items():
            values = expected[theirs]
            assert found[how][name]["summary"] == pytest.approx(function(values), rel=1e-9), (how, name, theirs)
        for name, theirs in IN_MS.items():
            values = [one * 1e6 for one in expected[f"task {theirs}"] if math.isfinite(one)]
            assert found[how][name]["summary"] == pytest.approx(function(values), rel=1e-9), (how, name)


@pytest.mark.parametrize(
    ("name", "state", "attempts", "error"),
    [
        ("ends", "Succeeded", 1, ""),
        ("fails", "Failed", 1, "java.lang.ArithmeticException: / by zero"),
        ("restarts", "Failed", 3, "java.lang.ArithmeticException: / by zero"),
    ],
)
def test_a_job_ended_as_flink_says(
    flink: Flink, server: ServerProcess, jobs: dict[str, str], name: str, state: str, attempts: int, error: str
) -> None:
    job = jobs[name]
    wait_until(lambda: flink.state(job) in {"FINISHED", "FAILED"}, f"the end of {name}", 60)
    collect(flink, server)
    says, found = flink.get(f"/jobs/{job}"), job_of(server, job)
    assert (found["job"]["name"], found["job"]["state"], found["job"].get("error", "")) == (name, state, error)
    assert (found["job"]["start"], found["job"]["end"]) == (says["start-time"], says["end-time"])
    numbers = sorted(one.get("attempt", 0) for one in found["replicas"])
    assert numbers == list(range(attempts))
    assert {one["state"] for one in found["replicas"]} == {state}
    assert found["replicas"][0]["name"] == flink.get("/taskmanagers")["taskmanagers"][0]["id"]
    failures = flink.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    events = server.call("GET", f"/api/jobmeter/v1/jobs/{job}/events").json()["events"]
    assert [one["time"] for one in events if one.get("reason") in {"Restarted", "JobFailed"}] == sorted(
        one["timestamp"] for one in failures
    )


def test_a_cancelled_job_is_stopped(flink: Flink, server: ServerProcess, jobs: dict[str, str]) -> None:
    job = jobs["steady"]
    wait_until(lambda: flink.state(job) == "RUNNING", "the job", 60)
    collect(flink, server)
    assert job_of(server, job)["job"]["state"] == "Running"
    flink.cancel(job)
    wait_until(lambda: flink.state(job) == "CANCELED", "the end", 60)
    collect(flink, server)
    found = job_of(server, job)
    end = next(one["end-time"] for one in flink.get("/jobs/overview")["jobs"] if one["jid"] == job)
    assert (found["job"]["state"], found["job"]["end"]) == ("Stopped", end)
    assert [one["state"] for one in task_managers(found)] == ["Stopped"]


def test_a_job_whose_task_manager_died_goes_on_as_another_attempt(
    flink: Flink, server: ServerProcess, jobs: dict[str, str]
) -> None:
    job = jobs["recovers"]
    collect(flink, server)
    first = task_managers(job_of(server, job))
    assert len(first) == 1
    flink.kill("taskmanager")
    wait_until(lambda: flink.state(job) != "RUNNING", "the loss to be seen", 90)
    flink.start("taskmanager")

    def again() -> list[dict[str, Any]]:
        if flink.state(job) != "RUNNING":
            return []
        collect(flink, server)
        replicas = task_managers(job_of(server, job))
        return replicas if any(one["state"] == "Running" for one in replicas) and len(replicas) > 1 else []

    replicas = wait_until(again, "the next attempt", 120)
    assert job_of(server, job)["job"]["state"] == "Running"
    restarts = len(flink.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"])
    latest = max(replicas, key=lambda one: one.get("attempt", 0))
    assert (latest["state"], latest.get("attempt", 0)) == ("Running", restarts)
    assert latest["name"] != first[0]["name"]
    ended = next(one for one in replicas if one["name"] == first[0]["name"] and one.get("attempt", 0) == 0)
    assert ended["end"] is not None


def test_jobs_of_a_job_manager_that_was_started_anew_are_unknown(
    flink: Flink, server: ServerProcess, jobs: dict[str, str]
) -> None:
    job = jobs["windows"]
    collect(flink, server)
    assert job_of(server, job)["job"]["state"] == "Running"
    flink.kill("jobmanager")
    flink.start("jobmanager")
    assert flink.get("/jobs/overview")["jobs"] == []
    collect(flink, server)
    found = job_of(server, job)["job"]
    assert found["state"] == "Unknown"
    assert "no longer has the job" in found["error"]
