"""Ranks of real launchers: the jobs that ``jobmeter agent`` derives from processes of MPI and Dask."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.ingest_server import Received, ingest_server
from tests.e2e.test_job_rules import agent
from tests.programs import find
from tests.support.needs import needing
from tests.support.waiting import wait_until

DASK = Path(__file__).parents[2] / ".venvs/dask/bin/dask"
WAIT = """\
import os, sys, threading
open(sys.argv[2] + str(os.getpid()), "w").close()
while os.path.exists(sys.argv[2]): threading.Event().wait(.05)
"""
MPI = {
    "mpirun.openmpi": ("--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "-n", "3"),
    "mpiexec.hydra": ("-launcher", "fork", "-hosts", "localhost", "-n", "3"),
}


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[None]:
    """Run a launcher for the block. Its processes end when the file ``folder/go`` disappears."""
    go = folder / "go"
    go.touch()
    with (folder / "launcher.log").open("wb") as output:
        launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
    finally:
        go.unlink()
        launcher.terminate()
        launcher.wait(30)


@pytest.mark.parametrize("name", [pytest.param(name, marks=needing(name)) for name in MPI])
def test_each_rank_of_mpi_is_a_replica(tmp_path: Path, name: str) -> None:
    go = tmp_path / "go"
    job = f"mpi-{os.getpid()}"
    command = [str(find(name)), *MPI[name], sys.executable, "-c", WAIT, job, str(go)]
    with ingest_server() as server, started(command, tmp_path):
        wait_until(lambda: len(list(tmp_path.glob("go?*"))) == 3, "the ranks")
        done = agent(server, tmp_path, f'[[job]]\ncommand = "*python* -c import* {job} *"\njob = "{job}"\n')
        assert done.returncode == 0, done.stderr
        told = [one for record in server.jobs if record["job_id"] == job for one in record["replicas"]]
        assert {one["name"]: one.get("rank") for one in told} == {"worker-0": 0, "worker-1": 1, "worker-2": 2}
        assert processes(server, job, "worker-1") == processes(server, job, "worker-2") == 1
        # The launcher's own command line contains the command of the ranks.
        assert processes(server, job, "worker-0") > 1


def processes(server: Received, job: str, replica: str) -> float:
    """Return the number of processes of a replica."""
    ((_, count),) = server.values("process.count", job=job, replica=replica)
    return float(count)


@pytest.mark.skipif(not DASK.exists(), reason="needs the environment .venvs/dask: make sdk")
def test_the_workers_of_dask_are_one_replica_by_a_rule(tmp_path: Path) -> None:
    """Dask 2026.8: a nanny starts each worker by multiprocessing, without a rank in its environment."""
    name = f"dask-{os.getpid()}"
    address = tmp_path / "scheduler.json"
    quiet = ("--no-dashboard", "--host", "127.0.0.1")
    scheduler = [str(DASK), "scheduler", "--scheduler-file", str(address), "--port", "0", *quiet]
    workers = [str(DASK), "worker", "--scheduler-file", str(address), "--nworkers", "2", "--nthreads", "1", *quiet]
    (tmp_path / "of-scheduler").mkdir()
    log = tmp_path / "launcher.log"
    with (
        ingest_server() as server,
        started(scheduler, tmp_path / "of-scheduler"),
        started([*workers, "--name", name, "--local-directory", str(tmp_path)], tmp_path),
    ):
        registered = "Registered to:"
        wait_until(lambda: log.read_text().count(registered) == 2, "two workers")
        rule = f'[[job]]\ncommand = "*dask worker *--name {name} *"\njob = "{name}"\ntype = "Dask"\n'
        done = agent(server, tmp_path, rule)
        assert done.returncode == 0, done.stderr
        (found,) = [one for one in server.jobs if one["job_id"] == name]
        assert [(one["name"], one.get("rank")) for one in found["replicas"]] == [("worker-0", None)]
        # The starter of the workers, the resource tracker, and the two workers.
        assert processes(server, name, "worker-0") == 4
