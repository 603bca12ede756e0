"""Two namespaces of a real API server: the objects of one namespace reveal nothing of the other's jobs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import Kubernetes, cluster, needs_kubernetes, pod_spec
from tests.support.processes import ServerProcess, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    needs_kubernetes("kube-apiserver", "kube-controller-manager", "etcd", "openssl")
    with cluster(with_node=False) as found:
        yield found


def create(kubernetes: Kubernetes, namespace: str, kind: str, metadata: dict[str, Any], spec: Any) -> dict[str, Any]:
    version, path = {"Pod": ("v1", "api/v1"), "Job": ("batch/v1", "apis/batch/v1")}[kind]
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    found: dict[str, Any] = kubernetes.create(f"/{path}/namespaces/{namespace}/{kind.lower()}s", body)
    return found


def pods_of(kubernetes: Kubernetes, namespace: str) -> dict[str, str]:
    items = kubernetes.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {one["metadata"]["uid"]: one["metadata"]["name"] for one in items}


def replicas(server: ServerProcess) -> dict[str, set[str]]:
    """Return the pods of all jobs, by the namespace of the job."""
    found: dict[str, set[str]] = {}
    for job in server.call("GET", "/api/jobmeter/v1/jobs").json()["jobs"]:
        body = server.call("GET", f"/api/jobmeter/v1/jobs/{job['id']}?project={job['project']}").json()
        pods = {one["pod_id"] for one in body["replicas"] if one["pod_id"]}
        found.setdefault(body["job"]["workspace"], set()).update(pods)
    return found


@pytest.mark.parametrize("projects", ["key", "namespace"])
def test_a_namespace_gets_no_pod_and_no_job_of_another(kubernetes: Kubernetes, tmp_path: Path, projects: str) -> None:
    victim, attacker = f"victim-{projects}", f"attacker-{projects}"
    for name in (victim, attacker):
        kubernetes.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    template = {"spec": pod_spec("sleep 1000")}
    spec = {"backoffLimit": 0, "template": template}
    job = create(kubernetes, victim, "Job", {"name": f"train-{projects}", "labels": {"team": "t"}}, spec)
    uid = job["metadata"]["uid"]
    wait_until(lambda: pods_of(kubernetes, victim), "the victim's pod")
    victims = set(pods_of(kubernetes, victim))
    hostile = set()
    for number, kind in enumerate(("Job", "Deployment", "JobSet", "Pod")):
        owner = {"apiVersion": "batch/v1" if kind == "Job" else "v1", "kind": kind, "name": f"train-{projects}"}
        metadata = {"name": f"{projects}-{number}", "ownerReferences": [{**owner, "uid": uid, "controller": True}]}
        hostile.add(create(kubernetes, attacker, "Pod", metadata, pod_spec("sleep 1"))["metadata"]["uid"])
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    annotations = {f"kubernetes.io/config.{name}": next(iter(victims)) for name in ("mirror", "hash")}
    mirror: dict[str, Any] = {"name": f"{projects}-n1", "ownerReferences": [node], "annotations": annotations}
    placed = {**pod_spec("sleep 1"), "nodeName": "n1"}
    hostile.add(create(kubernetes, attacker, "Pod", mirror, placed)["metadata"]["uid"])
    with running(tmp_path / "data") as server:
        command = [sys.executable, "-m", "jobmeter", "scheduler", "kubernetes", "--cluster", "c", "--interval", "1s"]
        options = ["--server", server.url, "--key", server.token, "--kubeconfig", str(kubernetes.kubeconfig)]
        options += ["--spool", str(tmp_path / "spool"), "--projects", projects]
        with (tmp_path / "log").open("wb") as output:
            process = subprocess.Popen([*command, *options], stdout=output, stderr=output, start_new_session=True)
        try:
            # The garbage collector deletes objects with a missing owner, so some may be gone before the list.
            wait_until(lambda: replicas(server).get(victim, set()) >= victims, "the victim's job")
            there = hostile & set(pods_of(kubernetes, attacker))
            wait_until(lambda: replicas(server).get(attacker, set()) >= there, "the attacker's pods")
            found = replicas(server)
        finally:
            process.terminate()
            assert process.wait(30) == 0
        assert found[victim] == victims
        assert found.get(attacker, set()) <= hostile
        project = victim if projects == "namespace" else "default"
        (mine,) = [
            one
            for one in server.call("GET", f"/api/jobmeter/v1/jobs?project={project}").json()["jobs"]
            if one["workspace"] == victim and one["name"] == f"train-{projects}"
        ]
        assert mine["id"].partition("~")[0] == f"train-{projects}"
