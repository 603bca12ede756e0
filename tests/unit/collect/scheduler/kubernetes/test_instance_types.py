"""Tests of the instance type of a job: the type of the pods that do its work, in any order of arrival."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.scheduler.kubernetes.test_scheduler import NOW, Fed, change, kind_of, owned, pod

from jobmeter.collect.scheduler.kubernetes.informer import ObjectChange
from jobmeter.collect.scheduler.kubernetes.objects import Workload
from jobmeter.collect.scheduler.kubernetes.source import KubernetesScheduler
from jobmeter.model.record import JobRecord

MPI = kind_of("v2beta1/mpijobs")
SMALL = {"cpu": "500m", "memory": "1Gi"}
LARGE = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
OF_SMALL = {"cpu": 0.5, "memory": 2**30}
OF_LARGE = {"cpu": 8.0, "memory": 64 * 2**30, "gpu_count": 4, "gpu_type": "nvidia.com/gpu"}


def requesting(name: str, role: str, requests: dict[str, str] | None) -> dict[str, Any]:
    found = pod(name, ("MPIJob", "top"), **{"training.kubeflow.org/job-role": role})
    found["spec"]["containers"] = [{"name": "main", "resources": {"requests": requests}}]
    return found


def reported(pods: list[dict[str, Any]], *owners: ObjectChange[Workload]) -> JobRecord:
    (job,) = (
        KubernetesScheduler("c", Fed(*map(change, pods)), [(MPI, Fed(*(owners or [owned("MPIJob", "top")])))])
        .poll(NOW)
        .jobs
    )
    return job


PODS = [
    requesting("launcher", "launcher", SMALL),
    *(requesting(f"w{number}", "worker", LARGE) for number in range(3)),
    requesting("w3", "worker", {"cpu": "16"}),
    requesting("w4", "worker", None),
]


@given(st.permutations(PODS))
def test_it_is_that_of_most_workers(pods: list[dict[str, Any]]) -> None:
    assert reported(pods).instance_type == OF_LARGE


@given(st.permutations([PODS[0], PODS[1], PODS[4]]))
def test_of_several_kinds_of_workers_the_one_with_devices_counts(pods: list[dict[str, Any]]) -> None:
    assert reported(pods).instance_type == OF_LARGE


@given(st.permutations(PODS), st.integers(1, 5))
def test_pods_that_come_one_after_the_other_end_with_the_same(pods: list[dict[str, Any]], at: int) -> None:
    feed = Fed(*map(change, pods[:at]))
    scheduler = KubernetesScheduler("c", feed, [(MPI, Fed(owned("MPIJob", "top")))])
    (found,) = scheduler.poll(NOW).jobs
    feed.changes = [change(one) for one in pods[at:]]
    for record in scheduler.poll(NOW).jobs:
        found = record
    assert found.instance_type == OF_LARGE


def specified(**roles: Any) -> ObjectChange[Workload]:
    """Return an MPIJob whose specification says what its pods request."""
    found = owned("MPIJob", "top")
    assert found.found is not None
    found.found.spec["mpiReplicaSpecs"] = {
        role: {"template": {"spec": {"containers": [{"name": "main", "resources": {"limits": requests}}]}}}
        for role, requests in roles.items()
    }
    return found


def test_workers_that_are_gone_count_as_their_owner_specified_them() -> None:
    """The operator deletes them at the end of the job, and the watcher may start later."""
    assert reported([PODS[0]], specified(Launcher=SMALL, Worker=LARGE)).instance_type == OF_LARGE


CONTAINERS = [{"name": "main", "resources": {"limits": LARGE}}]
NO_WORKER = {"Worker": {"replicas": 0, "template": {"spec": {"containers": CONTAINERS}}}}


@pytest.mark.parametrize("odd", [{}, {"Worker": 5}, {"Worker": {"template": []}}, "text", None, NO_WORKER])
def test_a_job_of_coordinators_has_their_type(odd: Any) -> None:
    found = owned("MPIJob", "top")
    assert found.found is not None
    found.found.spec["mpiReplicaSpecs"] = odd
    assert reported([PODS[0]], found).instance_type == OF_SMALL


def test_a_replacement_counts_instead_of_what_it_replaces() -> None:
    """A worker failed and was replaced by one with more memory."""
    first, second = (requesting(f"w{number}", "worker", {"memory": f"{number}Gi"}) for number in (2, 1))
    for one in (first, second):
        one["metadata"]["labels"]["training.kubeflow.org/replica-index"] = "0"
    assert reported([first, second]).instance_type == {"memory": 2**30}


def test_a_job_that_requests_nothing_has_none() -> None:
    assert reported([PODS[5]]).instance_type is None
