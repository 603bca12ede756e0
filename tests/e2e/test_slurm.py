"""Jobs of a real Slurm as ``jobmeter scheduler`` tells them, beside what Slurm's own accounting says."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.processes import ServerProcess, running
from tests.slurm import V1, Slurm, cluster, needs_slurm
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]

STATES = {
    "COMPLETED": "Succeeded",
    "FAILED": "Failed",
    "OUT_OF_MEMORY": "Failed",
    "TIMEOUT": "Failed",
    "NODE_FAIL": "Failed",
    "CANCELLED": "Stopped",
    "PENDING": "Queued",
    "RUNNING": "Running",
}


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    needs_slurm()
    with cluster() as found:
        yield found


@pytest.fixture(scope="module")
def server(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("slurm") / "data") as found:
        yield found


class Watching:
    """``jobmeter scheduler slurm`` as a user starts it."""

    def __init__(self, slurm: Slurm, server: ServerProcess, *options: str) -> None:
        self.log = server.data.with_name("scheduler.log")
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "jobmeter",
                    "scheduler",
                    "slurm",
                    "--cluster",
                    "t",
                    "--interval",
                    "1s",
                    *options,
                ],
                env={
                    **slurm.environment,
                    "JOBMETER_SERVER": server.url,
                    "JOBMETER_KEY": server.token,
                    "JOBMETER_DATA": str(server.data),
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0


@pytest.fixture
def watching(slurm: Slurm, server: ServerProcess) -> Iterator[Watching]:
    found = Watching(slurm, server)
    yield found
    found.stop()


def told(server: ServerProcess, number: int) -> dict[str, Any]:
    """What the server knows of a job; empty when it knows nothing."""
    reply = server.call("GET", f"/api/jobmeter/v1/jobs/{number}")
    found: dict[str, Any] = reply.json() if reply.status == 200 else {}
    return found


def replicas_of(server: ServerProcess, number: int, count: int) -> list[dict[str, Any]]:
    """The replicas of a job, when there are so many."""
    found: list[dict[str, Any]] = told(server, number).get("replicas", [])
    return found if len(found) == count else []


def allocations_of(server: ServerProcess, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = told(server, number).get("allocations", [])
    return found


def wait_told(server: ServerProcess, number: int, state: str) -> dict[str, Any]:
    return wait_until(partial(_in_state, server, number, state), f"job {number} told as {state}")


def _in_state(server: ServerProcess, number: int, state: str) -> dict[str, Any]:
    found = told(server, number)
    return found if found and found["job"]["state"] == state else {}


def same_as_slurm(server: ServerProcess, slurm: Slurm, number: int) -> dict[str, Any]:
    """The job, once it is told as the accounting has it: state, times, names, nodes, exit status."""
    says = slurm.accounts(number)
    state, _, _ = says["State"].partition(" by ")
    found = wait_told(server, number, STATES[state])
    job = found["job"]
    code, _, signal = says["ExitCode"].partition(":")
    seconds = {name: int(says[name]) * 1000 if says[name].isdigit() else None for name in ("Submit", "Start", "End")}
    nodes = slurm.command("scontrol", "show", "hostnames", says["NodeList"]).split() if says["Start"].isdigit() else []
    if says["NodeList"] == "None assigned":
        nodes, seconds["Start"] = [], None
    assert (job["name"], job["user"], job["type"]) == (says["JobName"], says["User"], "Slurm")
    assert (job["workspace"], job["resource_group"]) == (says["Account"], says["Partition"])
    assert (job["created"], job["start"], job["end"]) == (seconds["Submit"], seconds["Start"], seconds["End"])
    assert job["labels"].get("nodes", "") == ",".join(nodes)
    assert job["labels"]["requested.cpus"] == says["ReqCPUS"]
    assert job["labels"]["slurm.state"] == state
    if job["end"] is not None and job["start"] is not None:
        assert job["exit_code"] == (int(code) or (128 + int(signal) if int(signal) else 0))
        assert job["labels"]["slurm.exit_code"] == says["ExitCode"]
    return found


def test_jobs_of_every_end_are_told_as_slurm_has_them(slurm, server, watching):
    python = "python3 -c pass"
    held = slurm.submit("true", "--hold")
    waits = slurm.submit("true", "--hold")
    ended = [
        slurm.submit("srun -n4 sleep 0.3", "-J", "a name|of two", "-N2", "-n4"),
        slurm.submit("exit 3"),
        slurm.submit("srun bash -c 'exit 7'"),
        slurm.submit("kill -SEGV $$"),
        slurm.submit(python),
        slurm.submit("true"),
    ]
    stopped = slurm.submit("sleep 600")
    wait_until(lambda: slurm.state(stopped) == "RUNNING", "the job that is to be cancelled")
    wait_told(server, stopped, "Running")
    slurm.command("scancel", str(stopped), str(waits))
    slurm.over(*ended, stopped, waits)

    found = {number: same_as_slurm(server, slurm, number) for number in (*ended, stopped, waits, held)}
    assert found[held]["job"]["state"] == "Queued"
    assert found[waits]["job"]["error"].startswith("CANCELLED by ")
    assert found[ended[1]]["job"]["error"] == "FAILED: exit status 3"
    assert found[ended[3]]["job"]["error"] == "FAILED: ended by signal 11"
    wide = wait_until(lambda: replicas_of(server, ended[0], 4), "four tasks of the first job")
    assert [(one["name"], one["rank"]) for one in wide] == [(f"worker-{rank}", rank) for rank in range(4)]
    assert wide[0]["node"] == slurm.nodes[0]
    assert all(one["state"] == "Succeeded" and one["end"] is not None for one in wide)
    slurm.command("scancel", str(held))
    assert "Traceback" not in watching.log.read_text()


def test_the_tasks_of_an_array_are_jobs_under_their_own_numbers(slurm, server, watching):
    first = slurm.submit("exit $SLURM_ARRAY_TASK_ID", "--array=0-2%2", "-J", "many")
    rows = wait_until(lambda: _tasks(slurm, first, 3), "three tasks in the accounting")
    slurm.over(*rows)
    for number, label in rows.items():
        same_as_slurm(server, slurm, number)
        wait_until(partial(_shown_as, server, number, label), f"the label {label}")


def _tasks(slurm: Slurm, first: int, count: int) -> dict[int, str]:
    text = slurm.command("sacct", "-nPX", "-j", str(first), "--format=JobIDRaw,JobID")
    rows = (line.split("|") for line in text.splitlines())
    found = {int(raw): label for raw, label in rows if "[" not in label}
    return found if len(found) == count else {}


def _shown_as(server: ServerProcess, number: int, label: str) -> bool:
    return bool(told(server, number)["job"]["labels"].get("slurm.job") == label)


def test_a_job_that_was_requeued_has_an_attempt_for_each_run(slurm, server, watching):
    number = slurm.submit('test -n "$SLURM_RESTART_COUNT" && exit 0; sleep 600', "--requeue")
    wait_told(server, number, "Running")
    began = told(server, number)["job"]["start"]
    slurm.command("scontrol", "requeue", str(number))
    wait_told(server, number, "Queued")
    # Slurm lets a job that was requeued wait for two minutes, unless it is told otherwise.
    wait_until(lambda: slurm.state(number) == "PENDING", "the job in the queue")
    slurm.command("scontrol", "update", f"JobId={number}", "StartTime=now")
    slurm.over(number)
    found = wait_told(server, number, "Succeeded")
    attempts = wait_until(lambda: replicas_of(server, number, 2), "two attempts of the task")
    assert [(one["name"], one["attempt"], one["state"], one["reason"]) for one in attempts] == [
        ("worker-0", 0, "Stopped", "REQUEUED"),
        ("worker-0", 1, "Succeeded", ""),
    ]
    assert found["job"]["start"] == began == attempts[0]["start"]
    assert attempts[1]["start"] >= attempts[0]["end"]
    assert found["job"]["end"] == int(slurm.accounts(number)["End"]) * 1000


def test_the_gpus_of_a_job_are_its_allocations(slurm, server, watching):
    number = slurm.submit("srun sleep 600", "-N2", "-n2", "--gres=gpu:1")
    held = wait_until(lambda: allocations_of(server, number), "the GPUs of the job")
    assert {(one["node"], one["device"], one["replica"], one["source"], one["end"]) for one in held} == {
        (slurm.nodes[0], "gpu0", "worker-0", "scheduler", None),
        (slurm.nodes[1], "gpu0", "worker-1", "scheduler", None),
    }
    slurm.command("scancel", str(number))
    slurm.over(number)
    found = wait_told(server, number, "Stopped")
    assert {one["end"] for one in found["allocations"]} == {found["job"]["end"]}
    assert found["job"]["labels"]["requested.gpus"] == "2"


@pytest.mark.skipif(not V1, reason="memory is limited here with control groups of version 1 alone")
def test_a_job_that_ran_out_of_memory_is_told_so(slurm, server, watching):
    number = slurm.submit("python3 -c 'x = bytearray(b\"a\") * (300 << 20)'", "--mem=40")
    slurm.over(number)
    found = same_as_slurm(server, slurm, number)
    assert found["job"]["error"].startswith("OUT_OF_MEMORY: ")
    assert [one["reason"] for one in found["replicas"]] == ["OUT_OF_MEMORY"]


def test_what_ended_while_nobody_watched_is_told_after_a_restart(slurm, server):
    first = Watching(slurm, server)
    number = slurm.submit("sleep 1; exit 4")
    wait_told(server, number, "Running")
    first.stop()
    missed = slurm.submit("exit 5")
    slurm.over(number, missed)
    again = Watching(slurm, server, "--once")
    assert again.process.wait(60) == 0, again.log.read_text()
    assert same_as_slurm(server, slurm, number)["job"]["exit_code"] == 4
    assert same_as_slurm(server, slurm, missed)["job"]["exit_code"] == 5
    before = told(server, number)
    once_more = Watching(slurm, server, "--once")
    assert once_more.process.wait(60) == 0
    after = told(server, number)
    for found in (before, after):
        found["job"].pop("updated")
    assert json.dumps(before["job"]) == json.dumps(after["job"])
    assert before["replicas"] == after["replicas"]


def test_a_cluster_that_does_not_answer_is_told_once(slurm, server, tmp_path):
    nowhere = tmp_path / "slurm.conf"
    nowhere.write_text((slurm.folder / "etc/slurm.conf").read_text().replace("SlurmctldPort=", "SlurmctldPort=1#"))
    done = subprocess.run(
        [sys.executable, "-m", "jobmeter", "scheduler", "slurm", "--cluster", "t", "--once", "--spool", str(tmp_path)],
        env={
            **slurm.environment,
            "SLURM_CONF": str(nowhere),
            "JOBMETER_SERVER": server.url,
            "JOBMETER_KEY": server.token,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("Slurm answers with an error: ") == 2, "once by the log, once as the reason of the status"
