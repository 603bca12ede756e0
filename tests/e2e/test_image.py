"""Tests of the image of ``deploy/Containerfile``, run like the chart's agents on a real node.

JOBMETER_IMAGE names an image of podman: `podman build -f deploy/Containerfile -t localhost/jobmeter:0.1.0 .`
"""

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster_suite import needs_image
from tests.e2e.test_kubernetes import job_in_state, make
from tests.e2e.test_kubernetes_jobs import BUSY, measured, started
from tests.support.charts import NAMESPACE, objects, rendered
from tests.support.kubernetes import Kubernetes, cluster
from tests.support.processes import ServerProcess, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(600)]
IMAGE = os.environ.get("JOBMETER_IMAGE", "")


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """Yield a cluster that has the image."""
    needs_image()
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.run(["podman", "save", "--format", "docker-archive", "-o", str(archive), IMAGE], check=True, timeout=200)
    with cluster() as found:
        found.load(archive)
        archive.unlink()
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(tmp_path / "data") as found:
        yield found


def test_the_agents_of_the_chart_measure_pods(kubernetes: Kubernetes, server: ServerProcess, tmp_path: Path) -> None:
    name, _, tag = IMAGE.rpartition(":")
    values = {
        "cluster": "c",
        "image": {"repository": name, "tag": tag, "pullPolicy": "Never"},
        "server": {"enabled": False, "url": server.url},
        "watcher": {"enabled": False},
        "agent": {"interval": "1s", "spool": str(tmp_path / "spool")},
    }
    kubernetes.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    secret = {"metadata": {"name": "jobmeter-key"}, "stringData": {"token": server.token}}
    kubernetes.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    (agents,) = objects(rendered(values))
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
    watch = ("scheduler", "kubernetes", "--kubeconfig", str(kubernetes.kubeconfig), "--spool", str(tmp_path / "w"))
    common = ("--server", server.url, "--key", server.token, "--cluster", "c", "--interval", "1s")
    with started(tmp_path / "watcher.log", *watch, *common):
        kubernetes.create(path, agents)
        try:
            wait_until(partial(_describes_itself, server, kubernetes.node), "the agent in its pod", 180)
            make(kubernetes, "two", f"{BUSY}sleep 6", completions=2, parallelism=2)
            job_in_state(server, "two", "Succeeded")
            used = wait_until(lambda: _both(measured(server, "two")), "the use of both pods", 60)
        finally:
            kubernetes.ask("DELETE", f"{path}/jobmeter-agent?propagationPolicy=Background")
            ended = f"/api/v1/namespaces/{NAMESPACE}/pods"
            wait_until(lambda: not kubernetes.get(ended)["items"], "the end of the agent", 90)
    assert all(seconds > 0.05 for seconds in used.values()), used


def _both(used: dict[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    return used if set(used) == {("worker-0", 0), ("worker-1", 0)} else {}


def _describes_itself(server: ServerProcess, node: str) -> bool:
    return node in {one["name"] for one in server.call("GET", "/api/jobmeter/v1/nodes").json()["nodes"]}
