"""Replica of a pod: by the labels of its controller, else by its number in order."""

import re
from dataclasses import dataclass

from jobmeter.collect.scheduler.kubernetes.objects import PodObject
from jobmeter.collect.text import parse_whole_number

_ORDINAL = re.compile(r".*-(\d{1,6})")
_TYPES = ("training.kubeflow.org/replica-type", "replica-type")
_INDICES = ("training.kubeflow.org/replica-index", "replica-index")
_COMPLETION = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_VOLCANO = "volcano.sh/"
_MOST = 64


@dataclass(frozen=True, slots=True)
class ReplicaSlot:
    """Name of a replica, and its rank if the labels have it. Without a name it is the next free one of ``role``."""

    name: str = ""
    rank: int | None = None
    role: str = "worker"


def read_slot(pod: PodObject) -> ReplicaSlot:
    """Return the replica by the pod's labels.

    They belong to batch/v1, JobSet, Kubeflow's training operator, Volcano, KubeRay and LeaderWorkerSet.
    """
    label = pod.metadata.find_label
    task = label(f"{_VOLCANO}task-spec"), label(f"{_VOLCANO}task-index")
    if all(task):
        return ReplicaSlot(_name(*task))
    if kind := label(*_TYPES, "training.kubeflow.org/job-role"):
        index = label(*_INDICES)
        return ReplicaSlot(_name(kind.lower(), index)) if index else ReplicaSlot(role=_word(kind.lower()))
    completion = label(_COMPLETION)
    if group := label(f"{_JOBSET}replicatedjob-name"):
        return ReplicaSlot(_name(group, label(f"{_JOBSET}job-index") or "0", completion or "0"))
    if completion:
        return ReplicaSlot(_name("worker", completion), parse_whole_number(completion))
    if group := label(f"{_LWS}group-index"):
        return ReplicaSlot(_name("group", group, "worker", label(f"{_LWS}worker-index") or "0"))
    if node_type := label("ray.io/node-type"):
        return ReplicaSlot(role=_word("head" if node_type == "head" else label("ray.io/group") or "worker"))
    owner = pod.metadata.owner
    if owner is not None and owner.kind == "StatefulSet" and (match := _ORDINAL.fullmatch(pod.metadata.name)):
        return ReplicaSlot(_name("worker", match[1]), parse_whole_number(match[1]))
    return ReplicaSlot()


def _name(*parts: str) -> str:
    return "-".join(_word(part) for part in parts)


def _word(text: str) -> str:
    word = re.sub(r"[^A-Za-z0-9.-]", "-", text)[:_MOST].strip("-.")
    return word or "worker"
