"""Jobs of a real Kubernetes that ``jobmeter scheduler`` reports, beside the API server's own facts."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import Kubernetes, cluster, needs_kubernetes, pod_spec
from tests.support.processes import ServerProcess, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    needs_kubernetes()
    with cluster() as found:
        yield found


@pytest.fixture(scope="module")
def server(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("kubernetes") / "data") as found:
        yield found


@pytest.fixture(scope="module")
def watching(kubernetes: Kubernetes, server: ServerProcess) -> Iterator[Path]:
    """Run ``jobmeter scheduler kubernetes`` as a user starts it; yield its log."""
    log = server.data.with_name("scheduler.log")
    command = [sys.executable, "-m", "jobmeter", "scheduler", "kubernetes", "--cluster", "c", "--interval", "1s"]
    options = ["--server", server.url, "--key", server.token, "--kubeconfig", str(kubernetes.kubeconfig)]
    options += ["--spool", str(server.data.with_name("spool"))]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=output, start_new_session=True)
    yield log
    process.terminate()
    assert process.wait(30) == 0


def make(kubernetes: Kubernetes, name: str, script: str, **spec: Any) -> str:
    """Create a Job that runs a shell script, and return its name."""
    memory, restart = spec.pop("memory", "32Mi"), spec.pop("restart", "Never")
    template = {"spec": pod_spec(script, memory=memory, restart=restart)}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    whole = {**body, "spec": {"backoffLimit": 0, **spec, "template": template}}
    kubernetes.create("/apis/batch/v1/namespaces/default/jobs", whole)
    return name


def job_in_state(server: ServerProcess, name: str, state: str) -> dict[str, Any]:
    def found() -> dict[str, Any]:
        reply = server.call("GET", f"/api/jobmeter/v1/jobs/{name}")
        body: dict[str, Any] = reply.json() if reply.status == 200 else {}
        return body if body and body["job"]["state"] == state else {}

    return wait_until(found, f"job {name} has the state {state}")


def attempts(job: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = [(one["name"], one["attempt"], one["state"], one["exit_code"]) for one in job["replicas"]]
    return sorted(found)


def same_as_the_api(kubernetes: Kubernetes, found: dict[str, Any]) -> None:
    """Check that the times of the job and of its pods equal the times of the API server."""
    name = found["job"]["id"]
    says = kubernetes.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")
    assert _iso(found["job"]["created"]) == says["metadata"]["creationTimestamp"]
    assert _iso(found["job"]["start"]) == says["status"]["startTime"]
    (condition,) = says["status"]["conditions"]
    assert _iso(found["job"]["end"]) == says["status"].get("completionTime", condition["lastTransitionTime"])
    pods = kubernetes.get(f"/api/v1/namespaces/default/pods?labelSelector=job-name={name}")["items"]
    ends = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in pods]
    intervals = [(_iso(one["start"]), _iso(one["end"])) for one in found["replicas"]]
    assert sorted(intervals)[-len(ends) :] == sorted((end["startedAt"], end["finishedAt"]) for end in ends)
    assert {one["node"] for one in found["replicas"]} == {kubernetes.node}


def _iso(value: object) -> str:
    from datetime import UTC, datetime

    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(value).replace(".000", "")


def test_jobs_are_reported_as_the_api_server_has_them(
    kubernetes: Kubernetes, server: ServerProcess, watching: Path
) -> None:
    two = make(kubernetes, "two", "sleep 2", completions=2, parallelism=2)
    oom = make(kubernetes, "oom", "dd if=/dev/zero of=/dev/null bs=200M count=1", memory="20Mi")
    retried = make(kubernetes, "retried", "exit 3", backoffLimit=1)
    again = make(kubernetes, "again", "sleep 1; exit 5", backoffLimit=1, restart="OnFailure")
    found = job_in_state(server, two, "Succeeded")
    assert attempts(found) == [("worker-0", 0, "Succeeded", 0), ("worker-1", 0, "Succeeded", 0)]
    same_as_the_api(kubernetes, found)
    found = job_in_state(server, oom, "Failed")
    assert attempts(found) == [("worker-0", 0, "Failed", 137)]
    assert found["job"]["error"].startswith("OOMKilled: worker-0: ")
    same_as_the_api(kubernetes, found)
    found = job_in_state(server, retried, "Failed")
    assert attempts(found) == [("worker-0", number, "Failed", 3) for number in range(2)]
    same_as_the_api(kubernetes, found)
    found = job_in_state(server, again, "Failed")
    assert [one[1:] for one in attempts(found)][:2] == [(number, "Failed", 5) for number in range(2)]
    assert watching.read_text().count("\n") == 1, watching.read_text()


def test_a_deleted_job_is_stopped(kubernetes: Kubernetes, server: ServerProcess, watching: Path) -> None:
    name = make(kubernetes, "deleted", "sleep 1000")
    job_in_state(server, name, "Running")
    kubernetes.ask("DELETE", f"/apis/batch/v1/namespaces/default/jobs/{name}?propagationPolicy=Background")
    found = job_in_state(server, name, "Stopped")
    assert found["job"]["end"] is not None
    wait_until(partial(_stopped, server, name), "the end of its pod")


def _stopped(server: ServerProcess, name: str) -> bool:
    found = server.call("GET", f"/api/jobmeter/v1/jobs/{name}").json()
    return all(one["state"] in {"Stopped", "Failed"} for one in found["replicas"])
