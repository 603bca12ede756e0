"""Jobs of a cluster and their named pods, built from changes of the API server's objects."""

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from jobmeter.collect.scheduler.kubernetes.kinds import SCHEDULES, OwnerKind
from jobmeter.collect.scheduler.kubernetes.naming import read_slot
from jobmeter.collect.scheduler.kubernetes.objects import Metadata, PodObject, Workload
from jobmeter.collect.scheduler.kubernetes.owners import (
    POD,
    OwnerPresence,
    OwnerTable,
    PodOwner,
    RootOwner,
    claim_owner,
)
from jobmeter.collect.scheduler.kubernetes.runs import PodRun, end_deleted_run, read_runs
from jobmeter.collect.scheduler.kubernetes.saved_state import SavedJob, SavedPod, SavedState
from jobmeter.model.job import JobState

_TRIES = 3
"""Retries for a pod without its owner. The two arrive by different watches."""
_PATIENCE_MS = 10_000
"""Least wait in milliseconds of a pod for an owner whose kind is listed. After it the owner does not exist."""
_PASSIVE = frozenset({"ReplicaSet", "StatefulSet", "RayCluster", "LeaderWorkerSet"})
"""Kinds that are jobs only while they have pods."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClusterMember:
    """Pod of a job. ``runs`` are by their number in the pod."""

    pod: PodObject
    place: SavedPod
    runs: dict[int, PodRun] = field(default_factory=dict)
    presence: OwnerPresence = OwnerPresence.THERE
    node_uid: str = ""
    """Uid of the pod on its node: the kubelet's own for a static pod, else the API server's."""


@dataclass(slots=True)
class _Waiting:
    """Pod whose owner was not found, with the number of tries and their start."""

    pod: PodObject
    since_ms: int
    tries: int = 0


@dataclass(slots=True)
class ClusterJob:
    """Job: its id and project, its root owner, and its pods by uid in order of creation.

    Every pod is in the namespace of the root owner.
    """

    job_id: str
    project: str
    root: RootOwner
    owner: PodOwner | None = None
    members: dict[str, ClusterMember] = field(default_factory=dict)


class ClusterState:
    """Applies changes, and returns the affected jobs. For one thread.

    The key of a job, ``RootOwner.key``, includes the namespace: no pod is a member of another namespace's job.
    """

    def __init__(self, saved: SavedState, *, by_namespace: bool, namespaces: frozenset[str]) -> None:
        """``by_namespace``: each namespace is a project. ``namespaces`` are the reported ones; empty: all."""
        self.saved = saved
        self.jobs: dict[str, ClusterJob] = {}
        self._by_namespace = by_namespace
        self._namespaces = namespaces
        self._owners = OwnerTable(self._get_pod_metadata)
        self._job_of_pod: dict[str, str] = {}
        self._mirrors: dict[tuple[str, str], dict[str, None]] = {}
        """Pods that claim to mirror a static pod, by its node and uid."""
        self._waiting: dict[str, _Waiting] = {}
        self._dirty: dict[str, None] = {}

    def update_workload(self, kind: OwnerKind, found: Workload) -> None:
        """Add or update a workload."""
        if not self._includes_namespace(found.metadata):
            return
        owner = self._owners.add(kind, found)
        root, above = owner.root, found.metadata.owner
        if root.key in self.jobs or (kind.name not in _PASSIVE and (above is None or above.kind in SCHEDULES)):
            job = self._get_job(root)
            job.root, job.owner = root, owner
            self._dirty[root.key] = None

    def delete_workload(self, uid: str, now_ms: int, presence: OwnerPresence) -> None:
        """Note that a workload was deleted."""
        if (owner := self._owners.get(uid)) is not None and owner.presence is OwnerPresence.THERE:
            owner.presence, owner.deleted_ms = presence, now_ms
            self._dirty[owner.root.key] = None

    def remove_missing_workloads(self, kind: OwnerKind, there: frozenset[str], now_ms: int) -> None:
        """Remove the workloads of a kind that are not in a complete list."""
        for uid in self._owners.take_list(kind, there):
            self.delete_workload(uid, now_ms, OwnerPresence.MISSING)

    def update_pods(self, found: Iterable[PodObject], now_ms: int, behind: Collection[OwnerKind] = ()) -> None:
        """Add or update pods. Several states of one pod are in order of time.

        ``behind`` are the kinds of owners whose watch is interrupted.
        """
        for pod in found:
            uid = pod.metadata.uid
            if uid in self._job_of_pod or self._join_pod(pod, now_ms, behind):
                self._update(pod)

    def retry_waiting(self, now_ms: int, behind: Collection[OwnerKind] = ()) -> None:
        """Search the owners of waiting pods again, once per poll."""
        for waiting in self._waiting.values():
            waiting.tries += 1
        self.update_pods([waiting.pod for waiting in self._waiting.values()], now_ms, behind)

    def delete_pod(self, uid: str, presence: OwnerPresence) -> None:
        """Note that a pod was deleted."""
        self._waiting.pop(uid, None)
        job = self.jobs.get(self._job_of_pod.get(uid, ""))
        member = job.members[uid] if job else None
        if job is None or member is None or member.presence is not OwnerPresence.THERE:
            return
        member.presence = presence
        latest = max(member.runs, default=0)
        run = member.runs.get(latest, PodRun(JobState.QUEUED))
        member.runs[latest] = end_deleted_run(run, member.pod, observed=presence is OwnerPresence.DELETED)
        self._withdraw(member)
        self._note(job, member)

    def remove_missing_pods(self, there: frozenset[str]) -> None:
        """Remove the pods that are not in a complete list."""
        for uid in [uid for uid in [*self._job_of_pod, *self._waiting] if uid not in there]:
            self.delete_pod(uid, OwnerPresence.MISSING)

    def take_changed(self) -> Iterator[ClusterJob]:
        """Return the jobs that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return (self.jobs[key] for key in dirty if key in self.jobs)

    def list_lost(self) -> list[SavedJob]:
        """Return jobs of the stored state that no longer exist, each once."""
        names = [key for key in self.saved.jobs if key not in self.jobs]
        return [self.saved.jobs.pop(key) for key in names]

    def forget(self, job: ClusterJob) -> None:
        """Remove a finished job from the stored state, and entirely once the cluster has no object of it."""
        key = job.root.key
        self.saved.jobs.pop(key, None)
        if job.owner is not None and job.owner.presence is OwnerPresence.THERE:
            return
        if any(member.presence is OwnerPresence.THERE for member in job.members.values()):
            return
        del self.jobs[key]
        if job.owner is not None:
            self._owners.forget(job.root.uid)
        for uid in job.members:
            del self._job_of_pod[uid]

    def _note(self, job: ClusterJob, member: ClusterMember) -> None:
        latest = max(member.runs)
        state = member.runs[latest].state
        member.place.runs = latest + 1
        member.place.failed = state.finished and state is not JobState.SUCCEEDED
        self._dirty[job.root.key] = None

    def _update(self, pod: PodObject) -> None:
        job = self.jobs[self._job_of_pod[pod.metadata.uid]]
        member = job.members[pod.metadata.uid]
        if member.pod.static_uid != pod.static_uid:
            self._withdraw(member)
        member.pod, member.presence = pod, OwnerPresence.THERE
        member.runs.update(read_runs(pod))
        if pod.static_uid:
            claims = self._mirrors.setdefault((pod.spec.node_name, pod.static_uid), {})
            claims[pod.metadata.uid] = None
            self._share_out(claims)
        else:
            member.node_uid = pod.metadata.uid
        self._note(job, member)

    def _withdraw(self, member: ClusterMember) -> None:
        """Withdraw a pod's claim that it mirrors a static pod."""
        place = member.pod.spec.node_name, member.pod.static_uid
        claims = self._mirrors.get(place, {})
        claims.pop(member.pod.metadata.uid, None)
        self._share_out(claims)
        if not claims:
            self._mirrors.pop(place, None)

    def _share_out(self, claims: Collection[str]) -> None:
        """Assign a static pod to the only pod that claims to mirror it, and to no pod if several do."""
        for uid in claims:
            job = self.jobs[self._job_of_pod[uid]]
            member = job.members[uid]
            wanted = member.pod.static_uid if len(claims) == 1 else uid
            if member.node_uid != wanted:
                member.node_uid = wanted
                self._dirty[job.root.key] = None
        if len(claims) > 1:
            _log.warning(
                "pods %s all claim to mirror one static pod: its samples are assigned to none of them",
                ", ".join(claims),
            )

    def _includes_namespace(self, metadata: Metadata) -> bool:
        return not self._namespaces or metadata.namespace in self._namespaces

    def _join_pod(self, pod: PodObject, now_ms: int, behind: Collection[OwnerKind]) -> bool:
        """Add the pod to its job. False if it is not reported, or its owner may still arrive."""
        metadata = pod.metadata
        waiting = self._waiting.pop(metadata.uid, None)
        if not self._includes_namespace(metadata):
            return False
        root = self._find_root(pod, waiting, now_ms, behind)
        if root is None:
            self._waiting[metadata.uid] = _Waiting(pod, now_ms) if waiting is None else replace(waiting, pod=pod)
            return False
        job = self._get_job(root)
        job.owner = job.owner or self._owners.find_workload(root)
        job.members[metadata.uid] = ClusterMember(pod, self._get_place(job, pod))
        self._job_of_pod[metadata.uid] = root.key
        return True

    def _find_root(
        self, pod: PodObject, waiting: _Waiting | None, now_ms: int, behind: Collection[OwnerKind]
    ) -> RootOwner | None:
        """Return the root of a pod's owners; None while it may still arrive."""
        metadata = pod.metadata
        found = self._owners.resolve(RootOwner(POD, metadata.name, metadata.namespace, metadata.uid), metadata)
        if found.missing is None:
            return found.root
        owner = claim_owner(found.missing, metadata.namespace)
        if self._was_in(owner, pod):
            return owner
        if waiting is None or waiting.tries < _TRIES:
            return None
        if self._owners.may_be_late(found.missing, behind):
            return owner
        return found.root if now_ms - waiting.since_ms >= _PATIENCE_MS else None

    def _was_in(self, owner: RootOwner, pod: PodObject) -> bool:
        """Return True if the pod was a member of the owner's job before a restart."""
        saved = self.saved.jobs.get(owner.key)
        return saved is not None and pod.metadata.uid in saved.pods

    def _get_pod_metadata(self, uid: str) -> Metadata | None:
        job = self.jobs.get(self._job_of_pod.get(uid, ""))
        return job.members[uid].pod.metadata if job else None

    def _get_job(self, root: RootOwner) -> ClusterJob:
        """Return the job of a root owner, created if missing."""
        if root.key not in self.jobs:
            project = root.namespace if self._by_namespace else ""
            saved = self.saved.adopt(root.key, root.name, project)
            self.jobs[root.key] = ClusterJob(saved.job_id, project, root)
        return self.jobs[root.key]

    def _get_place(self, job: ClusterJob, pod: PodObject) -> SavedPod:
        places = self.saved.jobs.setdefault(job.root.key, SavedJob(job.job_id, job.project)).pods
        for uid, member in job.members.items():
            places.setdefault(
                uid, member.place
            )  # a finished job is not in the stored state, and a pod of it may come late
        if (place := places.get(pod.metadata.uid)) is not None:
            return place
        wanted = read_slot(pod)
        name = wanted.name or _free(wanted.role, places)
        first = max((place.first + place.runs for place in places.values() if place.replica == name), default=0)
        places[pod.metadata.uid] = found = SavedPod(name, first, rank=wanted.rank)
        return found


def _free(role: str, places: dict[str, SavedPod]) -> str:
    """Return the first replica of a role whose pod has failed, for a replacement; else the next one."""
    last = {place.replica: place for place in places.values()}
    number = 0
    while (place := last.get(f"{role}-{number}")) is not None and not place.failed:
        number += 1
    return f"{role}-{number}"


def sort_pods(pods: Iterable[PodObject]) -> list[PodObject]:
    """Sort the pods by creation, which numbers the nameless ones."""
    return sorted(pods, key=lambda pod: (str(pod.metadata.creation_timestamp or ""), pod.metadata.name))
