"""The replica of a job that a Kubernetes pod is: reported by a cluster's watcher, read by an agent."""

import re

import msgspec

MOST_PODS = 100
"""Most pods of one request."""
WATCHED_LABEL = "kubernetes.uid"
"""The label by which only the watcher of a cluster marks the jobs that it reports."""

_JOB = re.compile(r"pod-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})")


def job_of_pod(uid: str) -> str:
    """The id of the job of a pod that belongs to no other job."""
    return f"pod-{uid}"


def pod_of_job(job: str) -> str:
    """The uid in such an id; empty for any other job."""
    match = _JOB.fullmatch(job) if job.startswith("pod-") else None
    return match[1] if match else ""


class PodReplica(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pod ``uid`` is this replica; run ``n`` of its containers, counted from 0, is attempt ``first + n`` of it.

    ``rank`` is that of the replica where the watcher has one.
    """

    uid: str
    project: str
    job: str
    replica: str
    first: int = 0
    rank: int | None = None


class NodePods(msgspec.Struct, frozen=True):
    """Those of the requested pods that a watcher reported."""

    pods: list[PodReplica] = []
