"""Usage of pods of a real Kubernetes, measured by the agent of the node, in the jobs of the cluster's watcher.

The final table compares each pod with the API server: its replica, attempts, usage, node, states and ends.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobmeter.collect.kubelet.client import PodResources
from tests.e2e.test_kubernetes import job_in_state, make, same_as_the_api
from tests.support.kubernetes import Kubernetes, cluster, needs_kubernetes, pod_spec
from tests.support.processes import ServerProcess, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(400)]

BUSY = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; "
CRDS = {
    # kind: (group, version, plural, labels of its pods by number)
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "PyTorchJob": ("kubeflow.org", "v1", "pytorchjobs"),
    "MPIJob": ("kubeflow.org", "v2beta1", "mpijobs"),
    "RayCluster": ("ray.io", "v1", "rayclusters"),
    "VolcanoJob": ("batch.volcano.sh", "v1alpha1", "jobs"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
}
_LWS = "leaderworkerset.sigs.k8s.io/"
PODS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "JobSet": [
        (
            f"train-0-{index}",
            {
                "jobset.sigs.k8s.io/replicatedjob-name": "train",
                "jobset.sigs.k8s.io/job-index": "0",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        )
        for index in range(2)
    ],
    "PyTorchJob": [
        (
            f"{role}-{index}",
            {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)},
        )
        for role, index in (("master", 0), ("worker", 0), ("worker", 1))
    ],
    "MPIJob": [
        ("launcher-0", {"training.kubeflow.org/job-role": "launcher"}),
        *(
            (f"worker-{index}", {"training.kubeflow.org/job-role": "worker",
                                 "training.kubeflow.org/replica-index": str(index)})
            for index in range(2)
        ),
    ],
    "RayCluster": [
        ("head-0", {"ray.io/node-type": "head"}),
        ("gpu-0", {"ray.io/node-type": "worker", "ray.io/group": "gpu"}),
    ],
    "VolcanoJob": [
        (f"task-{index}", {"volcano.sh/task-spec": "task", "volcano.sh/task-index": str(index)}) for index in range(2)
    ],
    "LeaderWorkerSet": [
        (f"group-0-worker-{index}", {f"{_LWS}group-index": "0", f"{_LWS}worker-index": str(index)})
        for index in range(2)
    ],
}  # fmt: skip


@dataclass
class Table:
    """Rows of (subject, property, result), printed at the end."""

    rows: list[tuple[str, str, bool, str]] = field(default_factory=list)

    def check(self, subject: str, what: str, found: object, wanted: object) -> None:
        self.rows.append((subject, what, found == wanted, f"{found!r} for {wanted!r}"))

    def text(self) -> str:
        waiting_rows = sum(row[2] for row in self.rows)
        lines = [
            f"{subject:<28} {what:<28} {'yes' if holds else 'NO: ' + detail}"
            for subject, what, holds, detail in self.rows
        ]
        return "\n".join([*lines, f"{waiting_rows} of {len(self.rows)} hold"])


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    needs_kubernetes()
    with cluster() as found:
        yield found


@contextmanager
def started(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobmeter", *words], stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


@pytest.fixture(scope="module")
def server(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Run a server, the cluster's watcher and the node's agent, as a user starts them."""
    folder = tmp_path_factory.mktemp("joined")
    with running(folder / "data") as found:
        common = ("--server", found.url, "--key", found.token, "--cluster", "c", "--interval", "1s")
        watch = ("scheduler", "kubernetes", "--kubeconfig", str(kubernetes.kubeconfig), "--spool", str(folder / "w"))
        measure = ("agent", "--node", kubernetes.node, "--no-kernel-log", "--no-journal", "--spool", str(folder / "a"))
        with started(folder / "watcher.log", *watch, *common), started(folder / "agent.log", *measure, *common):
            yield found


def define(kubernetes: Kubernetes, kind: str) -> None:
    """Define a kind as its operator does, without its schema."""
    group, version, plural = CRDS[kind]
    name = kind.removeprefix("Volcano")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": name.lower(), "kind": name},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    kubernetes.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)


def own(kubernetes: Kubernetes, kind: str) -> str:
    """Create an object of that kind, with the pods that its operator would create, and return its name."""
    group, version, plural = CRDS[kind]
    path, api = f"/apis/{group}/{version}/namespaces/default/{plural}", f"{group}/{version}"
    wait_until(lambda: kubernetes.asked(path), f"the kind {kind}")
    name, word = kind.lower(), kind.removeprefix("Volcano")
    made = kubernetes.create(path, {"apiVersion": api, "kind": word, "metadata": {"name": name}})
    owner = {"apiVersion": api, "kind": word, "name": name, "uid": made["metadata"]["uid"], "controller": True}
    for part, labels in PODS[kind]:
        metadata = {"name": f"{name}-{part}", "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(f"{BUSY}sleep 4")}
        kubernetes.create("/api/v1/namespaces/default/pods", body)
    return name


def pods_of(kubernetes: Kubernetes, name: str) -> list[dict[str, Any]]:
    """Return the pods whose owners lead to the object."""
    pods: list[dict[str, Any]] = kubernetes.get("/api/v1/namespaces/default/pods")["items"]
    return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-") or pod["metadata"]["name"] == name]


def jobs(server: ServerProcess) -> dict[str, dict[str, Any]]:
    return {job["id"]: job for job in server.call("GET", "/api/jobmeter/v1/jobs", limit=500).json()["jobs"]}


def measured(server: ServerProcess, job: str) -> dict[tuple[str, int], float]:
    """Return the CPU seconds of each attempt of each measured replica: the greatest value of its counter."""
    lines = server.call("GET", f"/api/jobmeter/v1/jobs/{job}/samples", metric="cpu.time").body.splitlines()
    return _counters(lines)


def _counters(lines: list[bytes]) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], float] = {}
    for line in lines:
        row = json.loads(line)
        key = (row["replica"], row["attempt"])
        found[key] = max(found.get(key, 0.0), row["value"])
    return found


def runs_of(pod: dict[str, Any]) -> list[tuple[str, int | None, str]]:
    """Return the ended runs of a pod's container, oldest first: state, exit status, reason.

    The API server has only the last two runs. In these tests all runs of a container end alike.
    """
    (status,) = pod["status"]["containerStatuses"]
    ends = [status[key]["terminated"] for key in ("state", "lastState") if "terminated" in status.get(key, {})]
    good = ends[0]["exitCode"] == 0
    over = status["restartCount"] + ("waiting" in status["state"] or "terminated" in status["state"])
    return [("Succeeded" if good else "Failed", ends[0]["exitCode"], "" if good else ends[0]["reason"])] * over


def compare(table: Table, kubernetes: Kubernetes, server: ServerProcess, name: str, replicas: list[str]) -> None:
    """Add rows for a job: its pods by the API server, in order of creation, beside Jobmeter's facts of each."""
    found = job_of(server, name)
    pods = sorted(pods_of(kubernetes, name), key=lambda pod: pod["metadata"]["creationTimestamp"])
    table.check(name, "replicas", sorted({one["name"] for one in found["replicas"]}), sorted(set(replicas)))
    by_pod: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(found["replicas"], key=lambda one: one["attempt"]):
        by_pod.setdefault(one["pod_id"], []).append(one)
    used = measured(server, name)
    for pod in pods:
        subject, mine = pod["metadata"]["name"], by_pod.get(pod["metadata"]["uid"], [])
        wanted = runs_of(pod)
        ends = [(one["state"], one["exit_code"], one["reason"]) for one in mine if one["state"] != "Running"]
        table.check(subject, "attempts, states, ends", ends, wanted)
        table.check(subject, "node", {one["node"] for one in mine}, {kubernetes.node})
        keys = [(one["name"], one["attempt"]) for one in mine]
        table.check(
            subject,
            "CPU of each attempt",
            [used.get(key, 0.0) > 0.05 for key in keys[: len(wanted)]],
            [True] * len(wanted),
        )
    attempts = {(one["name"], one["attempt"]) for one in found["replicas"]}
    table.check(name, "samples of others", sorted(set(used) - attempts), [])


def test_the_kubelet_is_queried_for_devices(kubernetes: Kubernetes) -> None:
    client = PodResources(kubernetes.folder / "kubelet/pod-resources/kubelet.sock")
    assert client.present
    assert client.list_devices() == [], "no device plug-in runs here"
    client.close()


def job_of(server: ServerProcess, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.call("GET", f"/api/jobmeter/v1/jobs/{name}").json()
    return found


def ended(server: ServerProcess, name: str, count: int) -> bool:
    """Return True if that number of attempts, and the job, have ended."""
    reply = server.call("GET", f"/api/jobmeter/v1/jobs/{name}")
    replicas = reply.json()["replicas"] if reply.status == 200 else []
    return sum(one["state"] in {"Succeeded", "Failed"} for one in replicas) >= count


def test_pods_are_measured_in_the_jobs_that_they_are_of(kubernetes: Kubernetes, server: ServerProcess) -> None:
    for kind in CRDS:
        define(kubernetes, kind)
    make(kubernetes, "two", f"{BUSY}sleep 4", completions=2, parallelism=2)
    make(kubernetes, "retried", f"{BUSY}sleep 3; exit 3", backoffLimit=1)
    again = {"spec": pod_spec(f"{BUSY}sleep 3; exit 5", restart="Always"), "metadata": {"name": "again"}}
    kubernetes.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **again})
    make(kubernetes, "oom", f"{BUSY}sleep 3; dd if=/dev/zero of=/dev/null bs=200M count=1", memory="20Mi")
    solo = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "solo"}, "spec": pod_spec(f"{BUSY}sleep 4")}
    kubernetes.create("/api/v1/namespaces/default/pods", solo)
    replicas = {
        "two": ["worker-0", "worker-1"],
        "retried": ["worker-0"],
        "again": ["worker-0"],
        "oom": ["worker-0"],
        "solo": ["worker-0"],
    }
    replicas |= {own(kubernetes, kind): [part for part, _ in PODS[kind]] for kind in CRDS}
    for name, names in replicas.items():
        count = 2 if name in {"retried", "again"} else len(names)
        wait_until(partial(ended, server, name, count), f"the end of {name}", 180)
    for name, state in (("two", "Succeeded"), ("retried", "Failed"), ("oom", "Failed"), ("again", "Running")):
        job_in_state(server, name, state)
    table = Table()
    for name, names in replicas.items():
        compare(table, kubernetes, server, name, names)
    same_as_the_api(kubernetes, job_of(server, "two"))
    table.check("again", "attempts", len(measured(server, "again")) >= 2, True)
    found = jobs(server)
    table.check("oom", "why it failed", found["oom"]["error"].split(":")[0], "OOMKilled")
    table.check("the cluster", "its jobs", sorted(found), sorted(replicas))
    print(f"\n{table.text()}")
    assert all(row[2] for row in table.rows), table.text()
