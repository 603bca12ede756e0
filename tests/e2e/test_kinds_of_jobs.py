"""Jobs of each scheduler, read through each vendor's API: state, times, exit status and replicas.

The scheduler outputs were recorded: ``sacct`` of Slurm 22.05, the API server of Kubernetes 1.20.2, and the job manager
of Flink 1.20.5. The server receives the records that ``jobmeter scheduler`` makes of them. A local run is real.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from jobmeter.collect.scheduler.flink.source import FlinkCluster
from jobmeter.collect.scheduler.kubernetes.kind import KIND
from jobmeter.collect.scheduler.slurm.accounting import COLUMNS, DELIMITER, parse_accounting
from jobmeter.collect.scheduler.slurm.records import build_records
from jobmeter.model.record import JobRecord, Records
from jobmeter.wire.native.encode import make_records_frame
from tests.support.processes import API, Reply, ServerProcess, running
from tests.support.waiting import wait_until
from tests.unit.collect.scheduler.flink.test_flink import IDS, NOW, Recording
from tests.unit.collect.scheduler.kubernetes.replay import PATHS, Replay, recorded, replaying
from tests.unit.collect.scheduler.kubernetes.test_scheduler import Together, complete

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Said:
    """Facts of a job by its scheduler: times in epoch milliseconds, and known exit statuses by replica."""

    state: str
    start: int | None
    end: int | None
    exits: dict[str, int | None]

    @property
    def replicas(self) -> set[str]:
        return set(self.exits)


def _slurm(number: int, state: str, code: str, nodes: str = "n1", start: str = "110", tasks: str = "1") -> list[str]:
    shared = {"user": "ada", "account": "a", "partition": "p", "submit": "100", "start": start, "end": "150"}
    whole = {**shared, "jobidraw": str(number), "jobid": str(number), "jobname": f"s{number}", "nodelist": nodes}
    step = {**whole, "jobidraw": f"{number}.0", "ntasks": tasks}
    lines = [whole] if start == "Unknown" else [whole, step]
    return [
        DELIMITER.join({**line, "state": state, "exitcode": code}.get(name, "") for name in COLUMNS) for line in lines
    ]


SLURM = [
    *_slurm(31, "COMPLETED", "0:0", "n[1-2]", tasks="2"),
    *_slurm(32, "FAILED", "3:0"),
    *_slurm(33, "FAILED", "0:11"),
    *_slurm(34, "TIMEOUT", "0:0"),
    *_slurm(35, "OUT_OF_MEMORY", "0:125"),
    *_slurm(36, "CANCELLED by 0", "0:15"),
    *_slurm(37, "CANCELLED by 0", "0:0", "None assigned", "Unknown"),
]


def _cluster_jobs() -> dict[str, Said]:
    """Read the jobs from the recorded events of the API server."""
    jobs = {event["object"]["metadata"]["name"]: event["object"] for event in map(json.loads, recorded("jobs"))}
    exits: dict[str, dict[str, int | None]] = {
        "two": {"worker-0": 0, "worker-1": 0},
        "oom": {"worker-0": 137},
        "exit3": {"worker-0": 3},
        "again": {"worker-0": 5},
        "long": {"worker-0": None},
    }
    found = {}
    for name, job in jobs.items():
        status = job["status"]
        over = next((one for one in status.get("conditions", ()) if one["status"] == "True"), None)
        state = "Running" if over is None else {"Complete": "Succeeded", "Failed": "Failed"}[over["type"]]
        end = None if over is None else _iso(over["lastTransitionTime"])
        found[name] = Said(state, _iso(status["startTime"]), end, exits[name])
    return found


FLINK = {"RUNNING": "Running", "FINISHED": "Succeeded", "FAILED": "Failed"}
EXPECTED = {
    "31": Said("Succeeded", 110_000, 150_000, {"worker-0": 0, "worker-1": 0}),
    "32": Said("Failed", 110_000, 150_000, {"worker-0": 3}),
    "33": Said("Failed", 110_000, 150_000, {"worker-0": 139}),
    "34": Said("Failed", 110_000, 150_000, {"worker-0": 0}),
    "35": Said("Failed", 110_000, 150_000, {"worker-0": 128 + 125}),
    "36": Said("Stopped", 110_000, 150_000, {"worker-0": 143}),
    "37": Said("Stopped", None, 150_000, {}),
}


def _flink_jobs(manager: Recording, found: list[JobRecord]) -> dict[str, Said]:
    """Read the jobs from the overview of the job manager. Task managers have no exit status."""
    names: dict[str, set[str]] = {}
    for record in found:
        names.setdefault(record.job_id, set()).update(
            one.name for one in record.replicas or () if not isinstance(one, str)
        )
    return {
        job["jid"]: Said(
            FLINK[job["state"]],
            job["start-time"],
            None if job["end-time"] < 0 else job["end-time"],
            dict.fromkeys(names[job["jid"]]),
        )
        for job in manager.answers["/jobs/overview"]["jobs"]
    }


def _kubernetes_records(folder: Path) -> list[JobRecord]:
    found: list[JobRecord] = []
    replay = Replay({path: recorded(name) for path, name in PATHS.items()})
    with replaying(replay):
        (folder / "kubeconfig").write_text(replay.kubeconfig)
        scheduler = KIND.make("c", {"kubeconfig": str(folder / "kubeconfig")}, None)

        reported = Together()

        def whole() -> bool:
            some = scheduler.poll(1_795_375_300_000).jobs
            found.extend(some)
            return complete(reported.take(some))

        wait_until(whole, "all that was recorded")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("kinds")
    manager = Recording()
    of_flink = FlinkCluster("f", manager).poll(NOW).jobs
    of_slurm = [one for job in parse_accounting("\n".join(SLURM)).values() for one in build_records(job, "s")]
    with running(folder / "data") as found:
        for some in (of_slurm, _kubernetes_records(folder), of_flink):
            assert found.ingest(make_records_frame(Records(jobs=some))).status == 200
        EXPECTED.update(_cluster_jobs())
        EXPECTED.update(_flink_jobs(manager, of_flink))
        command = [sys.executable, "-m", "jobmeter", "run", "--quiet", "--name", "local", "--", "sh", "-c", "exit 4"]
        reach = {"JOBMETER_SERVER": found.url, "JOBMETER_KEY": found.token, "JOBMETER_DATA": str(found.data)}
        assert subprocess.run(command, env={**os.environ, **reach}, check=False, timeout=120).returncode == 4
        yield found


JOBS = [str(number) for number in range(31, 38)] + ["two", "oom", "exit3", "again", "long", *IDS.values()]


ALL = ("native", "pai-dlc", "modelarts", "baseten")
ASKED = [(api, job) for api in ALL for job in JOBS] + [("foas", job) for job in IDS.values()]
"""Jobs of each API. The Flink API has only Flink's jobs."""


@pytest.mark.parametrize(("api", "job"), ASKED)
def test_each_api_says_what_the_scheduler_says(server: ServerProcess, api: str, job: str) -> None:
    said = EXPECTED[job]
    found, expected = APIS[api](server, job, said)
    assert found == expected


def _native(server: ServerProcess, job: str, said: Said) -> tuple[Any, Any]:
    body = _ok(server.call("GET", f"{API}/jobs/{job}"))
    latest: dict[str, int | None] = {}
    for one in sorted(body["replicas"], key=lambda one: one["attempt"]):
        latest[one["name"]] = one["exit_code"]
    return (body["job"]["state"], body["job"]["start"], body["job"]["end"], latest), (
        said.state,
        said.start,
        said.end,
        said.exits,
    )


def _pai_dlc(server: ServerProcess, job: str, said: Said) -> tuple[Any, Any]:
    body = _ok(server.call("GET", f"/api/v1/jobs/{job}"))
    pods = len({pod["PodId"] for pod in body.get("Pods", ())})
    finish = body.get("GmtFinishTime")
    return (body["Status"], None if not finish else _iso(finish), pods), (
        said.state,
        said.end and said.end // 1000 * 1000,
        len(said.replicas),
    )


def _modelarts(server: ServerProcess, job: str, said: Said) -> tuple[Any, Any]:
    status = _ok(server.call("GET", f"/v2/default/training-jobs/{job}"))["status"]
    phases = {"Succeeded": "Completed", "Failed": "Failed", "Stopped": "Terminated", "Running": "Running"}
    codes = {one["task"]: one["exit_code"] for one in status.get("task_statuses", ()) if "exit_code" in one}
    lived = None if said.start is None or said.end is None else said.end - said.start
    return (status["phase"], status.get("start_time"), lived and status["duration"], set(status["tasks"]), codes), (
        phases[said.state],
        said.start,
        lived,
        said.replicas or {"worker-0"},  # of a job that never ran, it names the task that it would have had
        {name: code for name, code in said.exits.items() if code is not None},
    )


def _baseten(server: ServerProcess, job: str, said: Said) -> tuple[Any, Any]:
    body = _ok(server.call("GET", f"/v1/training_projects/default/jobs/{job}"))["training_job"]
    words = {"Succeeded": "COMPLETED", "Failed": "FAILED", "Stopped": "STOPPED", "Running": "RUNNING"}
    return body["current_status"], f"TRAINING_JOB_{words[said.state]}"


def _foas(server: ServerProcess, job: str, said: Said) -> tuple[Any, Any]:
    path = "/api/v2/projects/default/instances"
    asked = [
        {"jobType": kind, "isArchived": old, "pageSize": "100"}
        for kind in ("FLINK_STREAM", "FLINK_BATCH")
        for old in ("true", "false")
    ]
    listed = [_ok(server.call("GET", f"{path}?{urlencode(query)}")) for query in asked]
    found = [one for page in listed for one in page["Instances"]["Instance"] if one["EngineJobHandler"] == job]
    one = found[0]
    # SUCCESS is for batch runs alone: a stream that has ended is TERMINATED.
    words = {"Succeeded": "TERMINATED", "Failed": "FAILED", "Stopped": "TERMINATED", "Running": "RUNNING"}
    return (one["ActualState"], one.get("StartTime"), one.get("EndTime")), (words[said.state], said.start, said.end)


APIS: dict[str, Callable[[ServerProcess, str, Said], tuple[Any, Any]]] = {
    "native": _native,
    "pai-dlc": _pai_dlc,
    "modelarts": _modelarts,
    "baseten": _baseten,
    "foas": _foas,
}


def test_a_run_of_this_machine_ended_in_every_api_as_the_kernel_says(server: ServerProcess) -> None:
    (job,) = [one for one in _ok(server.call("GET", f"{API}/jobs", name="local"))["jobs"] if one["name"] == "local"]
    said = Said("Failed", job["start"], job["end"], {"worker-0": 4})
    for name in ALL:
        found, expected = APIS[name](server, job["id"], said)
        assert found == expected, name


def _ok(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    return reply.json()


def _iso(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
