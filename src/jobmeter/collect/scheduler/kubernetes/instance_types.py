"""Instance type of a job: the requests of one of its workers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from jobmeter.collect.scheduler.kubernetes.cluster_state import ClusterJob, ClusterMember
from jobmeter.collect.scheduler.kubernetes.objects import Container, PodRequests, Workload

InstanceType = dict[str, int | float | str]
_COORDINATORS = frozenset({"launcher", "head", "ps"})
"""Roles that coordinate or serve others: MPIJob's launcher, Ray's head, TensorFlow's parameter servers."""
_ORDER = ("gpu_count", "cpu", "memory")


def find_instance_type(job: ClusterJob) -> InstanceType | None:
    """Return the request of most pods of the job; None if no pod requests anything.

    Coordinators count only in a job that consists of them. If its workers are gone, or do not exist yet, the owner's
    specification counts. Among equally frequent requests the largest counts, whatever the order of the pods.
    """
    newest = select_newest_pods(job)
    workers = [member for member in newest if member.place.replica.rpartition("-")[0] not in _COORDINATORS]
    found = [PodRequests(member.pod.spec.containers).instance_type for member in workers]
    if not workers:
        specified = [] if job.owner is None else list(_list_specified(job.owner.workload))
        found = [*specified] or [PodRequests(member.pod.spec.containers).instance_type for member in newest]
    return _find_most_frequent([one for one in found if one is not None])


def select_newest_pods(job: ClusterJob) -> list[ClusterMember]:
    """Return the newest pod of each replica, which together have the job's requests."""
    return list({member.place.replica: member for member in job.members.values()}.values())


def _find_most_frequent(found: Sequence[InstanceType]) -> InstanceType | None:
    count = Counter(tuple(sorted(one.items())) for one in found)

    def rank(one: InstanceType) -> tuple[int, list[int | float | str], str]:
        kind = tuple(sorted(one.items()))
        return count[kind], [one.get(name, 0) for name in _ORDER], str(kind)

    return max(found, key=rank, default=None)


def _list_specified(workload: Workload) -> Iterator[InstanceType]:
    """Yield the requests of each worker in a Kubeflow job's specification (``mpiReplicaSpecs.Worker`` etc.)."""
    for field, roles in workload.spec.items():
        if not (field.endswith("ReplicaSpecs") and isinstance(roles, dict)):
            continue
        for role, spec in roles.items():
            requested = PodRequests(_containers(spec)).instance_type
            if requested is not None and role.lower() not in _COORDINATORS and spec.get("replicas") != 0:
                yield requested


def _containers(spec: Any) -> list[Container]:  # noqa: ANN401 - any JSON
    try:
        return msgspec.convert(spec["template"]["spec"]["containers"], list[Container])
    except (KeyError, TypeError, msgspec.ValidationError):
        return []
