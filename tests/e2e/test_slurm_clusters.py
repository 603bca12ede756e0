"""Tests of two real Slurm clusters on one machine whose jobs have the same numbers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.test_slurm import Watching, agent_nodes, cpu_seconds, wait_for_state
from tests.support.processes import ServerProcess, running
from tests.support.slurm import V1, Slurm, cluster, needs_slurm
from tests.support.slurm_table import BURN
from tests.support.slurm_table import cpu_seconds as accounted_seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]

Clusters = tuple[Slurm, Slurm]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    needs_slurm()
    first = os.getpid() % 60_000 * 1_000 + 900
    with cluster("alpha", first) as alpha, cluster("beta", first) as beta:
        yield alpha, beta


@pytest.fixture(scope="module")
def server(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("clusters") / "data") as found:
        yield found


@pytest.mark.skipif(not V1, reason="jobs have control groups here with version 1 alone")
def test_jobs_of_two_clusters_with_one_number_are_two_jobs(
    clusters: Clusters, server: ServerProcess, tmp_path: Path
) -> None:
    alpha, beta = clusters
    watching = [
        Watching(alpha, server, "--cluster", "alpha"),
        Watching(beta, server, "--cluster", "beta", "--job-ids", "cluster"),
    ]
    command = [sys.executable, "-m", "jobmeter", "agent", "--interval", "1s", "--spool", str(tmp_path)]
    options = ["--server", server.url, "--key", server.token, "--no-kernel-log", "--no-journal"]
    log = tmp_path / "agent.log"
    with (
        log.open("wb") as output,
        subprocess.Popen([*command, *options], env=alpha.environment, stdout=output, stderr=output) as agent,
    ):
        try:
            wait_until(partial(agent_nodes, server, alpha), "the agent's first samples")
            seconds = {"alpha": 1, "beta": 3}
            numbers = {
                one.name: one.submit(f"python3 -c '{BURN.format(seconds[one.name])}'", "-J", f"of-{one.name}")
                for one in clusters
            }
            for one in clusters:
                one.over(numbers[one.name])
            number = numbers["alpha"]
            assert numbers == {"alpha": number, "beta": number}
            ids = {"alpha": str(number), "beta": f"{number}@beta"}
            found = {name: wait_for_state(server, quote(job), "Succeeded") for name, job in ids.items()}
        finally:
            agent.terminate()
            assert agent.wait(60) == 0
            for watch in watching:
                watch.stop()
    assert {name: job["job"]["name"] for name, job in found.items()} == {"alpha": "of-alpha", "beta": "of-beta"}
    assert {name: len(job["replicas"]) for name, job in found.items()} == {"alpha": 1, "beta": 1}
    measured = {name: cpu_seconds(server, quote(job)) for name, job in ids.items()}
    accounted = {one.name: accounted_seconds(one, numbers[one.name]) for one in clusters}
    assert all(accounted[name] >= used for name, used in seconds.items())
    assert measured == {name: pytest.approx(used, rel=0.2, abs=0.2) for name, used in accounted.items()}
    assert "jobs of Slurm's cluster beta go by NUMBER@beta: this node's own cluster is alpha" in log.read_text()
