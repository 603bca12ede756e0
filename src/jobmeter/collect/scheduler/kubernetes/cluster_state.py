"""The jobs of a cluster and their pods, built from changes of the API server's objects."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from jobmeter.collect.scheduler.kubernetes.kinds import SCHEDULES, WATCHED, OwnerKind
from jobmeter.collect.scheduler.kubernetes.naming import slot_of
from jobmeter.collect.scheduler.kubernetes.objects import Metadata, Pod, Workload
from jobmeter.collect.scheduler.kubernetes.runs import Run, gone, read_runs
from jobmeter.collect.scheduler.kubernetes.saved_state import SavedJob, SavedPod, SavedState
from jobmeter.model.job import JobState

_DEPTH = 8
"""Most owners above each other."""
_TRIES = 3
"""How often a pod without its owner is checked again: the two arrive by different watches."""
_POD = "Pod"
_PASSIVE = frozenset({"ReplicaSet", "StatefulSet", "RayCluster", "LeaderWorkerSet"})
"""Kinds that are jobs only while they have pods."""


class Presence(StrEnum):
    """Whether the API server has an object."""

    THERE = "there"
    DELETED = "deleted"
    MISSING = "missing"
    """It existed, and its deletion was not observed."""


@dataclass(frozen=True, slots=True)
class RootOwner:
    """The object that a job is made from: the root of its owners."""

    kind: str
    name: str
    namespace: str
    uid: str


@dataclass(slots=True)
class Owner:
    """A workload that is watched."""

    kind: OwnerKind
    workload: Workload
    presence: Presence = Presence.THERE
    deleted_ms: int | None = None


@dataclass(slots=True)
class Member:
    """A pod of a job; ``runs`` by their number in the pod."""

    pod: Pod
    place: SavedPod
    runs: dict[int, Run] = field(default_factory=dict)
    presence: Presence = Presence.THERE


@dataclass(slots=True)
class Job:
    """A job: its id and project, its root owner, and its pods by uid in the order of their creation."""

    job_id: str
    project: str
    root: RootOwner
    owner: Owner | None = None
    members: dict[str, Member] = field(default_factory=dict)


class ClusterState:
    """Applies changes, and gives the jobs that they touch. For one thread."""

    def __init__(self, saved: SavedState, *, by_namespace: bool, namespaces: frozenset[str]) -> None:
        """``by_namespace``: each namespace is a project. ``namespaces`` are those that are reported, empty: all."""
        self.saved = saved
        self.jobs: dict[str, Job] = {}
        self._by_namespace = by_namespace
        self._namespaces = namespaces
        self._owners: dict[str, Owner] = {}
        self._job_of_pod: dict[str, str] = {}
        self._waiting: dict[str, tuple[Pod, int]] = {}
        self._dirty: dict[str, None] = {}

    def workload(self, kind: OwnerKind, found: Workload) -> None:
        """Add or update a workload."""
        if not self._included(found.metadata):
            return
        uid = found.metadata.uid
        owner = self._owners.setdefault(uid, Owner(kind, found))
        owner.workload, owner.presence = found, Presence.THERE
        above = found.metadata.owner
        if uid in self.jobs or (kind.name not in _PASSIVE and (above is None or above.kind in SCHEDULES)):
            job = self._job(RootOwner(kind.name, found.metadata.name, found.metadata.namespace, uid))
            job.owner = owner
            self._dirty[uid] = None

    def workload_deleted(self, uid: str, now_ms: int, presence: Presence) -> None:
        """Note that a workload was deleted."""
        if (owner := self._owners.get(uid)) is not None and owner.presence is Presence.THERE:
            owner.presence, owner.deleted_ms = presence, now_ms
            self._dirty[uid] = None

    def missing_workloads(self, kind: OwnerKind, there: frozenset[str], now_ms: int) -> None:
        """Remove the workloads of a kind that are not in a complete list."""
        for uid in [uid for uid, owner in self._owners.items() if owner.kind is kind and uid not in there]:
            self.workload_deleted(uid, now_ms, Presence.MISSING)

    def pods(self, found: Iterable[Pod]) -> None:
        """Add or update pods; several states of one pod in order of time."""
        again = [pod for pod, _ in self._waiting.values()]
        for pod in [*again, *found]:
            uid = pod.metadata.uid
            if uid not in self._job_of_pod and not self._joined(pod):
                continue
            job = self.jobs[self._job_of_pod[uid]]
            member = job.members[uid]
            member.pod, member.presence = pod, Presence.THERE
            member.runs.update(read_runs(pod))
            self._note(job, member)

    def pod_deleted(self, uid: str, presence: Presence) -> None:
        """Note that a pod was deleted."""
        self._waiting.pop(uid, None)
        job = self.jobs.get(self._job_of_pod.get(uid, ""))
        member = job.members[uid] if job else None
        if job is None or member is None or member.presence is not Presence.THERE:
            return
        member.presence = presence
        latest = max(member.runs, default=0)
        run = member.runs.get(latest, Run(JobState.QUEUED))
        member.runs[latest] = gone(run, member.pod, observed=presence is Presence.DELETED)
        self._note(job, member)

    def missing_pods(self, there: frozenset[str]) -> None:
        """Remove the pods that are not in a complete list."""
        for uid in [uid for uid in self._job_of_pod if uid not in there]:
            self.pod_deleted(uid, Presence.MISSING)

    def touched(self) -> Iterator[Job]:
        """The jobs that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return (self.jobs[uid] for uid in dirty if uid in self.jobs)

    def lost(self) -> list[SavedJob]:
        """Jobs that were alive in the stored state and no longer exist; each is returned once."""
        names = [uid for uid in self.saved.jobs if uid not in self.jobs]
        return [self.saved.jobs.pop(uid) for uid in names]

    def forget(self, job: Job) -> None:
        """Remove a finished job from the stored state, and entirely once the cluster has no object of it."""
        uid = job.root.uid
        self.saved.jobs.pop(uid, None)
        if job.owner is not None and job.owner.presence is Presence.THERE:
            return
        if any(member.presence is Presence.THERE for member in job.members.values()):
            return
        del self.jobs[uid]
        self._owners.pop(uid, None)
        for pod in job.members:
            del self._job_of_pod[pod]

    def _note(self, job: Job, member: Member) -> None:
        latest = max(member.runs)
        state = member.runs[latest].state
        member.place.runs = latest + 1
        member.place.failed = state.finished and state is not JobState.SUCCEEDED
        self._dirty[job.root.uid] = None

    def _included(self, metadata: Metadata) -> bool:
        return not self._namespaces or metadata.namespace in self._namespaces

    def _joined(self, pod: Pod) -> bool:
        """Whether the pod is a member of a job by now."""
        uid = pod.metadata.uid
        _, tries = self._waiting.pop(uid, (pod, 0))
        if not self._included(pod.metadata):
            return False
        root, whole = self._root(pod)
        if not whole and tries < _TRIES:
            self._waiting[uid] = pod, tries + 1
            return False
        job = self._job(root)
        job.owner = job.owner or self._owners.get(root.uid)
        job.members[uid] = Member(pod, self._place(job, pod))
        self._job_of_pod[uid] = root.uid
        return True

    def _root(self, pod: Pod) -> tuple[RootOwner, bool]:
        """The uppermost owner of a pod, and whether every owner on the way to it was found."""
        metadata, namespace = pod.metadata, pod.metadata.namespace
        root = RootOwner(_POD, metadata.name, namespace, metadata.uid)
        for _ in range(_DEPTH):
            above = metadata.owner
            if above is None or above.kind in SCHEDULES or above.kind == "Node":
                return root, True
            root = RootOwner(above.kind, above.name, namespace, above.uid)
            found = self._metadata(above.uid)
            if found is None:
                return root, above.kind not in WATCHED and above.kind != _POD
            metadata = found
        return root, True

    def _metadata(self, uid: str) -> Metadata | None:
        if (owner := self._owners.get(uid)) is not None:
            return owner.workload.metadata
        job = self.jobs.get(self._job_of_pod.get(uid, ""))
        return job.members[uid].pod.metadata if job else None

    def _job(self, root: RootOwner) -> Job:
        if root.uid not in self.jobs:
            project = root.namespace if self._by_namespace else ""
            job = self.saved.jobs.get(root.uid)
            job_id = job.job_id if job else self.saved.claim(project, root.name, root.uid)
            self.jobs[root.uid] = Job(job_id, project, root)
            self.saved.jobs.setdefault(root.uid, SavedJob(job_id, project))
        return self.jobs[root.uid]

    def _place(self, job: Job, pod: Pod) -> SavedPod:
        places = self.saved.jobs.setdefault(job.root.uid, SavedJob(job.job_id, job.project)).pods
        for uid, member in job.members.items():
            places.setdefault(
                uid, member.place
            )  # a finished job is not in the stored state, and a pod of it may come late
        if (place := places.get(pod.metadata.uid)) is not None:
            return place
        wanted = slot_of(pod)
        name = wanted.name or _free(wanted.role, places)
        first = max((place.first + place.runs for place in places.values() if place.replica == name), default=0)
        places[pod.metadata.uid] = found = SavedPod(name, first, rank=wanted.rank)
        return found


def _free(role: str, places: dict[str, SavedPod]) -> str:
    """The first replica of a role whose pod has failed, so that this one takes its place; else the next one."""
    last = {place.replica: place for place in places.values()}
    number = 0
    while (place := last.get(f"{role}-{number}")) is not None and not place.failed:
        number += 1
    return f"{role}-{number}"


def ordered(pods: Iterable[Pod]) -> list[Pod]:
    """The pods in the order in which they were made: by it the nameless ones are numbered."""
    return sorted(pods, key=lambda pod: (str(pod.metadata.creation_timestamp or ""), pod.metadata.name))
