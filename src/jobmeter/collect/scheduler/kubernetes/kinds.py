"""Kinds of objects that own pods: their paths, and the meaning of their status."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from jobmeter.collect.scheduler.kubernetes.objects import PodCondition, Workload, convert_time, read_time
from jobmeter.model.job import JobState


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """Status of a workload, in epoch milliseconds. A missing state follows from the pods."""

    state: JobState | None = None
    start: int | None = None
    end: int | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """Watched kind: its path below the API server, and the function that reads its status."""

    name: str
    path: str
    read_status: Callable[[Workload], WorkloadStatus]

    @property
    def group(self) -> str:
        """API group: the part of an ``apiVersion`` before the slash."""
        return self.path.split("/")[1]


def _conditions(workload: Workload) -> dict[str, PodCondition]:
    """Return the true conditions by type."""
    try:
        listed = msgspec.convert(workload.status.get("conditions") or [], list[PodCondition])
    except msgspec.ValidationError:
        return {}
    return {condition.type: condition for condition in listed if condition.status == "True"}


def _read_conditions(workload: Workload) -> WorkloadStatus:
    """Read the status of batch/v1 Job, JobSet and the jobs of Kubeflow, which differ in one word."""
    conditions = _conditions(workload)
    start = read_time(workload.status.get("startTime"))
    done = conditions.get("Complete") or conditions.get("Completed") or conditions.get("Succeeded")
    for condition, state in ((conditions.get("Failed"), JobState.FAILED), (done, JobState.SUCCEEDED)):
        if condition is not None:
            end = read_time(workload.status.get("completionTime")) or convert_time(condition.last_transition_time)
            failed = state is JobState.FAILED
            reason, message = (condition.reason or "", condition.message or "") if failed else ("", "")
            return WorkloadStatus(state, start, end, reason, message)
    if "Suspended" in conditions or workload.spec.get("suspend") is True:
        return WorkloadStatus(JobState.QUEUED, start, reason="Suspended")
    if "Running" in conditions:
        return WorkloadStatus(JobState.RUNNING, start)
    return WorkloadStatus(None, start)


_RAY = {
    "PENDING": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "STOPPED": JobState.STOPPED,
}


def _ray_job(workload: Workload) -> WorkloadStatus:
    status = workload.status
    failed = status.get("jobDeploymentStatus") == "Failed"
    state = JobState.FAILED if failed else _RAY.get(str(status.get("jobStatus", "")))
    found = _read_state_word(status, state, "endTime")
    message = found.message if state is JobState.FAILED else ""
    return replace(found, start=read_time(status.get("startTime")), message=message)


_VOLCANO = {
    "Pending": JobState.QUEUED,
    "Running": JobState.RUNNING,
    "Restarting": JobState.RUNNING,
    "Completing": JobState.RUNNING,
    "Aborting": JobState.RUNNING,
    "Terminating": JobState.RUNNING,
    "Completed": JobState.SUCCEEDED,
    "Aborted": JobState.STOPPED,
    "Terminated": JobState.STOPPED,
    "Failed": JobState.FAILED,
}


def _volcano(workload: Workload) -> WorkloadStatus:
    state = workload.status.get("state")
    said: Mapping[str, Any] = state if isinstance(state, dict) else {}
    return _read_state_word(said, _VOLCANO.get(str(said.get("phase", ""))), "lastTransitionTime")


def _read_state_word(said: Mapping[str, Any], state: JobState | None, end: str) -> WorkloadStatus:
    """Read the status by the word for its state. The field ``end`` and the reason count once it is over."""
    if state is None or not state.finished:
        return WorkloadStatus(state)
    reason, message = (str(said.get(name) or "") for name in ("reason", "message"))
    return WorkloadStatus(state, end=read_time(said.get(end)), reason=reason, message=message)


def defer_to_pods(_workload: Workload) -> WorkloadStatus:
    """Return an empty status: the end of the kind follows from its pods."""
    return WorkloadStatus()


KINDS = (
    OwnerKind("Job", "apis/batch/v1/jobs", _read_conditions),
    OwnerKind("ReplicaSet", "apis/apps/v1/replicasets", defer_to_pods),
    OwnerKind("StatefulSet", "apis/apps/v1/statefulsets", defer_to_pods),
    OwnerKind("JobSet", "apis/jobset.x-k8s.io/v1alpha2/jobsets", _read_conditions),
    OwnerKind("PyTorchJob", "apis/kubeflow.org/v1/pytorchjobs", _read_conditions),
    OwnerKind("TFJob", "apis/kubeflow.org/v1/tfjobs", _read_conditions),
    OwnerKind("MPIJob", "apis/kubeflow.org/v2beta1/mpijobs", _read_conditions),
    OwnerKind("MPIJob", "apis/kubeflow.org/v1/mpijobs", _read_conditions),
    OwnerKind("RayJob", "apis/ray.io/v1/rayjobs", _ray_job),
    OwnerKind("RayCluster", "apis/ray.io/v1/rayclusters", defer_to_pods),
    OwnerKind("Job", "apis/batch.volcano.sh/v1alpha1/jobs", _volcano),
    OwnerKind("LeaderWorkerSet", "apis/leaderworkerset.x-k8s.io/v1/leaderworkersets", defer_to_pods),
)
"""Kinds that are watched if the API server has them."""
SCHEDULES = frozenset({"CronJob"})
"""Kinds that create jobs but are none: each object that they own is a job."""
