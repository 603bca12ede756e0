"""Replicas as pods: the newest attempt is the pod, earlier ones are its history."""

from collections.abc import Iterable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from jobmeter.dialects.alibaba.common.times import compute_seconds, stamp
from jobmeter.dialects.alibaba.pai_dlc.states import find_pod_status
from jobmeter.errors import NotFoundError
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job, JobView, Replica

_SPELT = {"ps": "PS", "graphlearn": "GraphLearn"}
_ALIVE = {"Pending", "Running"}


def make_pod_id(replica: Replica, job: Job) -> str:
    """Return the pod's id in the record, else one in the vendor's form."""
    return replica.pod_id or f"{job.id}-{replica.name}"


def make_pod_uid(replica: Replica, job: Job) -> str:
    """Return a UUID of this attempt of the pod, the same in every call."""
    return str(uuid5(NAMESPACE_URL, f"jobmeter:{job.project}/{job.id}/{replica.name}/{replica.attempt}"))


def name_pod_type(name: str) -> str:
    """Return the role of a replica: ``Worker`` of ``worker-0``."""
    role = name.rpartition("-")[0] or name
    return _SPELT.get(role, role[:1].upper() + role[1:])


def list_pods(view: JobView, now_ms: int) -> list[dict[str, Any]]:
    """Return each pod with its history, newest first, in the order of the replicas."""
    return [
        {**_pod(attempts[0], view.job, now_ms), "HistoryPods": [_pod(one, view.job, now_ms) for one in attempts[1:]]}
        for attempts in _attempts(view.replicas)
    ]


def find(view: JobView, requested: str, uid: str = "") -> tuple[Replica, bool]:
    """Return the replica of a pod id, and True if a uid was given.

    It is the attempt with that uid, by default the newest attempt. Raises NotFoundError (kind ``pod``).
    """
    named = [replica for replica in view.replicas if make_pod_id(replica, view.job) == requested]
    found = [replica for replica in named if not uid or make_pod_uid(replica, view.job) == uid]
    if not found:
        what = f"PodUid {uid[:128]} of PodId {requested[:128]}" if named else f"PodId {requested[:128]}"
        raise NotFoundError(f"The specified {what} does not exist in job {view.job.id}.", "pod", requested)
    return max(found, key=lambda replica: replica.attempt), bool(uid)


def _attempts(replicas: Iterable[Replica]) -> list[list[Replica]]:
    by_name = group_pairs((replica.name, replica) for replica in replicas)
    return [sorted(attempts, key=lambda one: -one.attempt) for attempts in by_name.values()]


def _pod(replica: Replica, job: Job, now_ms: int) -> dict[str, Any]:
    status = find_pod_status(replica, job)
    end = replica.end if replica.end is not None or not job.state.finished else job.end
    if status in _ALIVE:
        # A replica with samples alone ends at the last of them, and continues.
        end = None
    created = min((time for time in (replica.start, job.created) if time is not None), default=None)
    times = {
        "GmtCreateTime": stamp(created),
        "GmtStartTime": stamp(replica.start),
        "GmtFinishTime": stamp(end),
    }
    return {
        "PodId": make_pod_id(replica, job),
        "PodUid": make_pod_uid(replica, job),
        "Type": name_pod_type(replica.name),
        "Status": status,
        "SubStatus": "Evicted" if "evict" in replica.reason.casefold() else "Normal",
        "Ip": "",
        "NodeName": replica.node,
        "PodIps": [],
        **{name: text for name, text in times.items() if text},
        "Duration": compute_seconds(replica.start, end, now_ms),
        "supportedProfilingTypes": "",
    }
