"""Jobs of a real Slurm that ``jobmeter scheduler`` reports, beside Slurm's own accounting."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.needs import needs
from tests.support.processes import ServerProcess, running
from tests.support.slurm import V1, Slurm, cluster, needs_slurm
from tests.support.slurm_table import BURN, RECORD, STATES, Kind, compare
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]


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
    """Process of ``jobmeter scheduler slurm``, started as a user starts it."""

    def __init__(self, slurm: Slurm, server: ServerProcess, *options: str, path: str = "") -> None:
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
                    "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"],
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


def job_of(server: ServerProcess, number: int | str) -> dict[str, Any]:
    """Return the server's facts of a job; empty for an unknown job."""
    reply = server.call("GET", f"/api/jobmeter/v1/jobs/{number}")
    found: dict[str, Any] = reply.json() if reply.status == 200 else {}
    return found


def replicas_of(server: ServerProcess, number: int, count: int) -> list[dict[str, Any]]:
    """Return the replicas of a job if their number is ``count``, otherwise an empty list."""
    found: list[dict[str, Any]] = job_of(server, number).get("replicas", [])
    return found if len(found) == count else []


def allocations_of(server: ServerProcess, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job_of(server, number).get("allocations", [])
    return found


def wait_for_state(server: ServerProcess, number: int | str, state: str) -> dict[str, Any]:
    return wait_until(partial(_in_state, server, number, state), f"job {number} told as {state}")


def _in_state(server: ServerProcess, number: int | str, state: str) -> dict[str, Any]:
    found = job_of(server, number)
    return found if found and found["job"]["state"] == state else {}


def same_as_slurm(server: ServerProcess, slurm: Slurm, number: int) -> dict[str, Any]:
    """Wait until the job agrees with the accounting in state, times, names, nodes and exit status, and return it."""
    says = slurm.accounts(number)
    state, _, _ = says["State"].partition(" by ")
    found = wait_for_state(server, number, STATES[state])
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


def test_jobs_of_every_end_are_reported_as_slurm_has_them(slurm, server, watching):
    python = "python3 -c pass"
    reserved = slurm.submit("true", "--hold")
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
    wait_for_state(server, stopped, "Running")
    slurm.command("scancel", str(stopped), str(waits))
    slurm.over(*ended, stopped, waits)

    found = {number: same_as_slurm(server, slurm, number) for number in (*ended, stopped, waits, reserved)}
    assert found[reserved]["job"]["state"] == "Queued"
    assert found[waits]["job"]["error"].startswith("CANCELLED by ")
    assert found[ended[1]]["job"]["error"] == "FAILED: exit status 3"
    assert found[ended[3]]["job"]["error"] == "FAILED: ended by signal 11"
    wide = wait_until(lambda: replicas_of(server, ended[0], 4), "four tasks of the first job")
    assert [(one["name"], one["rank"]) for one in wide] == [(f"worker-{rank}", rank) for rank in range(4)]
    assert wide[0]["node"] == slurm.nodes[0]
    assert all(one["state"] == "Succeeded" and one["end"] is not None for one in wide)
    slurm.command("scancel", str(reserved))
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
    return bool(job_of(server, number)["job"]["labels"].get("slurm.job") == label)


def test_a_job_that_was_requeued_has_an_attempt_for_each_run(slurm, server, watching):
    number = slurm.submit('test -n "$SLURM_RESTART_COUNT" && exit 0; sleep 600', "--requeue")
    wait_for_state(server, number, "Running")
    began = job_of(server, number)["job"]["start"]
    slurm.command("scontrol", "requeue", str(number))
    wait_for_state(server, number, "Queued")
    # Slurm delays a requeued job by two minutes unless configured otherwise.
    wait_until(lambda: slurm.state(number) == "PENDING", "the job in the queue")
    slurm.command("scontrol", "update", f"JobId={number}", "StartTime=now")
    slurm.over(number)
    found = wait_for_state(server, number, "Succeeded")
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
    reserved = wait_until(lambda: allocations_of(server, number), "the GPUs of the job")
    assert {(one["node"], one["device"], one["replica"], one["source"], one["end"]) for one in reserved} == {
        (slurm.nodes[0], "gpu0", "worker-0", "scheduler", None),
        (slurm.nodes[1], "gpu0", "worker-1", "scheduler", None),
    }
    slurm.command("scancel", str(number))
    slurm.over(number)
    found = wait_for_state(server, number, "Stopped")
    assert {one["end"] for one in found["allocations"]} == {found["job"]["end"]}
    assert found["job"]["labels"]["requested.gpus"] == "2"


@pytest.mark.skipif(not V1, reason="memory is limited here with control groups of version 1 alone")
def test_a_job_that_ran_out_of_memory_is_reported_so(slurm, server, watching):
    number = slurm.submit("python3 -c 'x = bytearray(b\"a\") * (300 << 20)'", "--mem=40")
    slurm.over(number)
    found = same_as_slurm(server, slurm, number)
    assert found["job"]["error"].startswith("OUT_OF_MEMORY: ")
    assert [one["reason"] for one in found["replicas"]] == ["OUT_OF_MEMORY"]


@pytest.mark.skipif(not V1, reason="memory is limited here with control groups of version 1 alone")
def test_a_step_that_ran_out_of_memory_is_reported_however_its_script_went_on(slurm, server, watching):
    eats = "srun --mem=40 python3 -c 'x = bytearray(b\"a\") * (300 << 20)'"
    went_on = slurm.submit(f"{eats}; exit 0", "--mem=80")
    gave_up = slurm.submit(f"{eats} || exit 9", "--mem=80")
    slurm.over(went_on, gave_up)
    found = same_as_slurm(server, slurm, went_on)["job"]
    assert (found["state"], found["error"]) == ("Succeeded", "")
    found = same_as_slurm(server, slurm, gave_up)["job"]
    assert (found["state"], found["error"]) == ("Failed", "FAILED: exit status 9; step 0 ran out of memory")
    for number in (went_on, gave_up):
        (event,) = wait_until(partial(oom_events, server, number), f"the event of job {number}")
        assert event["message"].startswith("Step 0 ran out of memory")


def oom_events(server: ServerProcess, number: int) -> list[dict[str, Any]]:
    reply = server.call("GET", f"/api/jobmeter/v1/jobs/{number}/timeline")
    bodies: list[dict[str, Any]] = reply.json()
    return [{**one, "message": one["text"]} for one in bodies if one["kind"] == "event" and one["name"] == "OOMKilled"]


def test_parts_of_a_heterogeneous_job_are_jobs_under_their_own_numbers(slurm, server, watching):
    slurm.command(
        *(
            "sbatch",
            "--parsable",
            "-n1",
            f"-w{slurm.nodes[0]}",
            "--mem=50",
            ":",
            "-n1",
            f"-w{slurm.nodes[1]}",
            "--mem=60",
            "--wrap",
            "srun --het-group=0,1 sleep 3",
        )
    )
    first = int(slurm.command("squeue", "-h", "-t", "all", "-o", "%i").split("+")[0].split()[-1])
    slurm.over(first, first + 1)
    for offset in (0, 1):
        same_as_slurm(server, slurm, first + offset)
        wait_until(partial(_shown_as, server, first + offset, f"{first}+{offset}"), "the label of a part")
    # The only task of the second component has rank 1, and the component has no script of its own.
    for offset, task in enumerate(["worker-0", "worker-1"]):
        found = server.call("GET", f"/api/jobmeter/v1/jobs/{first + offset}").json()["replicas"]
        assert [(one["name"], one["rank"], one["node"]) for one in found] == [(task, offset, slurm.nodes[offset])]


def test_slurmrestd_reports_the_same_as_squeue(slurm, server):
    needs("slurmrestd")
    with slurm.rest() as address:
        watching = Watching(slurm, server, "--rest", address)
        try:
            reserved = slurm.submit("srun sleep 600", "-N2", "-n2", "--gres=gpu:1")
            ended = [slurm.submit("exit 3"), slurm.submit("kill -SEGV $$"), slurm.submit("true", "--mem=77")]
            slurm.over(*ended)
            for number in ended:
                same_as_slurm(server, slurm, number)
            found = wait_until(lambda: allocations_of(server, reserved), "the GPUs of the job")
            assert {(one["node"], one["device"]) for one in found} == {(node, "gpu0") for node in slurm.nodes}
            slurm.command("scancel", str(reserved))
            slurm.over(reserved)
            same_as_slurm(server, slurm, reserved)
        finally:
            watching.stop()


def test_slurmrestd_is_queried_with_a_token_that_is_renewed(slurm, server, tmp_path):
    needs("slurmrestd")
    needs("auth_jwt")
    token = tmp_path / "token"
    with slurm.rest_with_tokens() as address:
        token.write_text(slurm.token(8))
        watching = Watching(slurm, server, "--rest", address, "--rest-token-file", str(token))
        begin = len(watching.log.read_text())
        expired = f"the token of {token} expired at"
        try:
            first = slurm.submit("exit 3")
            slurm.over(first)
            same_as_slurm(server, slurm, first)
            wait_until(lambda: expired in watching.log.read_text()[begin:], "the expiry told")
            second = slurm.submit("exit 4")
            slurm.over(second)
            fresh = tmp_path / "fresh"
            fresh.write_text(slurm.token(600))
            fresh.replace(token)
            same_as_slurm(server, slurm, second)
        finally:
            watching.stop()
    said = watching.log.read_text()[begin:]
    assert said.count("expired at") == 1, said
    assert said.count("the scheduler answers again") == 1, said


def test_slurmrestd_without_a_token_requests_one(slurm, server):
    needs("slurmrestd")
    needs("auth_jwt")
    with slurm.rest_with_tokens() as address:
        watching = Watching(slurm, server, "--rest", address, "--once")
        begin = len(watching.log.read_text())
        assert watching.process.wait(60) == 1
        said = watching.log.read_text()[begin:]
    assert f"slurmrestd at {address} requires a token (401): give one in SLURM_JWT or --rest-token-file" in said


def test_slurm_is_queried_once_an_interval_whatever_happens(slurm, server, tmp_path):
    with counted(slurm, server, tmp_path) as questions:
        numbers = [slurm.submit("sleep 0.1; exit 5", "-J", f"many-{number}") for number in range(12)]
        slurm.over(*numbers)
        for number in numbers:
            wait_for_state(server, number, "Failed")
    times = questions()
    assert len(times["squeue"]) >= 2
    # A turn begins every three seconds. On a busy machine a command starts a moment later.
    assert min(after - before for before, after in pairwise(times["squeue"])) > 2
    assert len(times["sacct"]) <= len(times["squeue"])
    assert times["scontrol"] == [], "no job had a GPU"


def test_the_gpus_of_all_jobs_are_one_question_a_turn_at_most(slurm, server, tmp_path):
    with counted(slurm, server, tmp_path) as questions:
        numbers = [slurm.submit("sleep 600", "--gres=gpu:1", "--mem=20") for _ in range(3)]
        for number in numbers:
            wait_until(partial(allocations_of, server, number), f"the GPU of job {number}")
        slurm.command("scancel", *map(str, numbers))
        for number in numbers:
            wait_for_state(server, number, "Stopped")
    times = questions()
    assert min(after - before for before, after in pairwise(times["squeue"])) > 2
    assert len(times["scontrol"]) < len(times["squeue"]), "none where squeue names them"


@contextmanager
def counted(slurm: Slurm, server: ServerProcess, folder: Path) -> Iterator[Callable[[], dict[str, list[float]]]]:
    """Watch every three seconds. Yield a function that returns the times at which each command was called."""
    calls = folder / "calls"
    calls.touch()
    names = ("squeue", "sacct", "scontrol")
    for name in names:
        wrapper = folder / name
        wrapper.write_text(f'#!/bin/sh\necho "{name} $(date +%s.%N)" >> {calls}\nexec {shutil.which(name)} "$@"\n')
        wrapper.chmod(0o755)

    def times() -> dict[str, list[float]]:
        made = [line.split() for line in calls.read_text().splitlines()]
        return {name: [float(time) for made_by, time in made if made_by == name] for name in names}

    watching = Watching(slurm, server, "--interval", "3s", path=str(folder))
    try:
        yield times
    finally:
        watching.stop()


def test_jobs_that_ended_unobserved_are_reported_after_a_restart(slurm, server):
    first = Watching(slurm, server)
    number = slurm.submit("sleep 1; exit 4")
    wait_for_state(server, number, "Running")
    first.stop()
    missed = slurm.submit("exit 5")
    slurm.over(number, missed)
    again = Watching(slurm, server, "--once")
    assert again.process.wait(60) == 0, again.log.read_text()
    assert same_as_slurm(server, slurm, number)["job"]["exit_code"] == 4
    assert same_as_slurm(server, slurm, missed)["job"]["exit_code"] == 5
    before = job_of(server, number)
    once_more = Watching(slurm, server, "--once")
    assert once_more.process.wait(60) == 0
    after = job_of(server, number)
    for found in (before, after):
        found["job"].pop("updated")
    assert json.dumps(before["job"]) == json.dumps(after["job"])
    assert before["replicas"] == after["replicas"]


def test_a_cluster_that_does_not_answer_is_reported_once(slurm, server, tmp_path):
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


KINDS = (
    Kind("cancelled", "sleep 600"),
    Kind("one core", f"python3 -c '{BURN.format(3)}'"),
    Kind("a step", f"srun python3 -c '{BURN.format(2)}'{RECORD}"),
    Kind("tasks on two nodes", f"srun python3 -c '{BURN.format(1.5)}'{RECORD}", ("-N2", "-n3"), 3),
    Kind("two steps", f"srun -n1 python3 -c '{BURN.format(1)}'; srun -n1 python3 -c '{BURN.format(1)}'{RECORD}"),
    Kind("short steps", "; ".join([f"srun python3 -c '{BURN.format(0.4)}'"] * 4) + RECORD),
    Kind("succeeds", "true"),
    Kind("a fifth of a second", "sleep 0.2"),
    Kind("exits with 3", "exit 3"),
    Kind("a step exits with 7", "srun bash -c 'exit 7'"),
    Kind("a signal", "kill -SEGV $$"),
    Kind("a name", "sleep 1", ("-J", "a name|of two")),
    Kind("memory and CPUs", "sleep 1", ("-c2", "--mem=300")),
    Kind("a GPU", "sleep 1", ("--gres=gpu:1",)),
    Kind("out of memory", "python3 -c 'x = bytearray(b\"a\") * (300 << 20)'", ("--mem=40",)),
    Kind("held", "true", ("--hold",)),
    Kind("cancelled while it waits", "true", ("--hold",)),
)


@pytest.mark.skipif(not V1, reason="jobs have control groups here with version 1 alone")
def test_many_kinds_of_jobs_are_reported_as_sacct_has_them(slurm, server, watching, tmp_path, capsys):
    command = [
        sys.executable,
        "-m",
        "jobmeter",
        "agent",
        "--cluster",
        "t",
        "--interval",
        "1s",
        "--spool",
        str(tmp_path),
    ]
    options = ["--server", server.url, "--key", server.token, "--no-kernel-log", "--no-journal"]
    with (
        (tmp_path / "agent.log").open("wb") as output,
        subprocess.Popen(
            [*command, *options], env=slurm.environment, stdout=output, stderr=output, start_new_session=True
        ) as agent,
    ):
        try:
            # Processes before the start of the agent used CPU time that the agent does not know.
            wait_until(partial(agent_nodes, server, slurm), "the agent's first samples")
            numbers = {slurm.submit(kind.script, *kind.options): kind for kind in KINDS}
            by_name = {kind.name: number for number, kind in numbers.items()}
            wait_for_state(server, by_name["cancelled"], "Running")
            slurm.command("scancel", str(by_name["cancelled"]), str(by_name["cancelled while it waits"]))
            slurm.over(*(number for number in numbers if number != by_name["held"]))
            for number in numbers:
                wait_for_state(server, number, STATES[slurm.accounts(number)["State"].partition(" by ")[0]])
        finally:
            agent.terminate()
            assert agent.wait(60) == 0
    rows = compare(slurm, numbers, partial(job_of, server), partial(cpu_seconds, server))
    slurm.command("scancel", str(by_name["held"]))
    with capsys.disabled():
        print(f"\n{rows.text()}")
    assert rows.wrong == {}


def agent_nodes(server: ServerProcess, slurm: Slurm) -> set[str]:
    """Return the measured nodes, as opposed to the nodes that Slurm names."""
    reply = server.call("GET", "/api/jobmeter/v1/nodes")
    return {node["name"] for node in reply.json()["nodes"]} - set(slurm.nodes)


def cpu_seconds(server: ServerProcess, number: int | str) -> float:
    """Return the measured CPU seconds of a job."""
    query = {"metric": "cpu.time", "statistic": "increase", "by": "replica", "step": "1h"}
    reply = server.call("GET", f"/api/jobmeter/v1/jobs/{number}/metrics?{urlencode(query)}")
    assert reply.status == 200, reply.body
    return float(sum(value for line in reply.json()["lines"] for _, value in line["points"]))
