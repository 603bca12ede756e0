"""Kubernetes pods as replicas of jobs: reported by a cluster's watcher, read by an agent."""

import re

import msgspec

MOST_PODS = 100
"""Most pods of one request."""
WATCHED_LABEL = "kubernetes.uid"
"""Label by which only the watcher of a cluster marks the jobs that it reports."""

_JOB = re.compile(r"pod-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})")


def make_pod_job(uid: str) -> str:
    """Return the job id of a pod that belongs to no other job."""
    return f"pod-{uid}"


def parse_pod_job(job: str) -> str:
    """Return the uid in a job id of ``make_pod_job``; empty for any other job."""
    match = _JOB.fullmatch(job) if job.startswith("pod-") else None
    return match[1] if match else ""


class PodReplica(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Replica of the pod ``uid``; run ``n`` of its containers, counted from 0, is attempt ``first + n``.

    ``rank`` is the replica's rank if the watcher knows it.
    """

    uid: str
    project: str
    job: str
    replica: str
    first: int = 0
    rank: int | None = None


class NodePods(msgspec.Struct, frozen=True):
    """Requested pods that a watcher has reported."""

    pods: list[PodReplica] = []
