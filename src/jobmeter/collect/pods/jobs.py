"""Rename the samples and records of pods to their jobs. They wait while the job is unknown."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from jobmeter.collect.base import Owner, Samples
from jobmeter.collect.discover.member import Process
from jobmeter.collect.pods.pod import MOST_RECORDS, Pod
from jobmeter.collect.state_file import StateFile
from jobmeter.model.pod import MOST_PODS, PodReplica, parse_pod_job
from jobmeter.model.record import EventRecord, JobRecord, Records

PATIENCE = 60.0
"""Seconds that a pod waits after the server did not know its job."""
LONGEST = 600.0
"""Seconds that a pod waits while the server does not answer at all."""
MOST_SAMPLES = 30_000
"""Most waiting samples. Beyond that the longest waiting pod is sent under its own name."""
_AGAIN = 60.0
"""Seconds between requests for a pod that no longer waits."""
_FORGET = 3_600.0
_MOST = 10_000
_MOST_STORED = 2_000
"""Most stored pods. The oldest are dropped first."""


class PodJobs:
    """Renames samples and records of pods to their jobs, once these are known.

    ``rename_samples``, ``rename_records`` and ``take_released`` are for one thread; the others are thread-safe.

    A pod with an unknown job waits, unless no pod of this node ever had a known one: without a watcher in the cluster
    no pod waits after the first minute. Nothing is dropped: after the longest wait samples are sent under the name in
    the host name, else ``pod-UID``, and the server is asked for the pod every minute.
    """

    def __init__(
        self, processes: Callable[[], Iterable[Process]], monotonic: Callable[[], float], state: Path | None = None
    ) -> None:
        """``state`` is a folder that stores pods with known jobs, for a restart while no server answers."""
        self._processes = processes
        self._monotonic = monotonic
        self._file = StateFile(
            state and state / "pods.json",
            msgspec.json.Decoder(list[PodReplica]),
            "%s cannot be read (%s): all pods are requested from the server again",
            logging.WARNING,
        )
        self._known = {one.uid: one for one in self._file.load() or ()}
        self._pods: dict[str, Pod] = {}
        self._lock = Lock()
        self._found_any = bool(self._known)
        self._any_overdue = False
        self._patient = True

    @property
    def waiting(self) -> int:
        """Number of waiting samples."""
        with self._lock:
            return sum(len(pod.samples) for pod in self._pods.values())

    def find_owner(self, owner: Owner) -> Owner | None:
        """Return the replica of a process by its name on the node; None while its pod waits for its job."""
        uid = parse_pod_job(owner.job)
        if not uid:
            return owner
        with self._lock:
            pod = self._pods.get(uid)
            return pod.find_owner(owner.attempt) if pod is not None and pod.resolved else None

    def rename_samples(self, samples: Samples) -> Samples:
        """Return these samples and waiting ones whose names are known, each with its own time."""
        now = self._monotonic()
        with self._lock:
            self._find_pods(now)
            ready: Samples = []
            for sample in samples:
                uid = parse_pod_job(sample.series.job)
                if not uid:
                    ready.append(sample)
                elif (pod := self._get_pod(uid, now)).resolved:
                    ready.append(pod.rename_sample(sample))
                else:
                    pod.samples.append(sample)
            self._abandon_overdue(now)
            for pod in self._pods.values():
                if pod.resolved and pod.samples:
                    ready += [pod.rename_sample(sample) for sample in pod.samples]
                    pod.samples.clear()
            self._forget(now)
        return ready

    def rename_records(self, records: Records) -> Records:
        """Return the records whose names are known. ``take_released`` returns the others later."""
        now = self._monotonic()
        with self._lock:
            jobs = [one for one in records.jobs if not self._defer(parse_pod_job(one.job_id), one, now)]
            events = [one for one in records.events if not self._defer(parse_pod_job(one.job), one, now)]
            released = self._release()
        return Records(jobs=[*jobs, *released.jobs], nodes=records.nodes, events=[*events, *released.events])

    def take_released(self) -> Records:
        """Return waiting records whose names are known by now."""
        with self._lock:
            return self._release()

    def list_unresolved(self) -> list[str]:
        """Return the pods to request from the server now, least recently requested first."""
        now = self._monotonic()
        with self._lock:
            some = [
                pod
                for pod in self._pods.values()
                if pod.replica is None
                and not (pod.abandoned and pod.requested is not None and now - pod.requested < _AGAIN)
            ]
            some.sort(key=lambda pod: -1.0 if pod.requested is None else pod.requested)
            for pod in some[:MOST_PODS]:
                pod.requested = now
            return [pod.uid for pod in some[:MOST_PODS]]

    def answer(self, requested: Sequence[str], found: Iterable[PodReplica]) -> None:
        """Update with the server's answer for the requested pods."""
        now = self._monotonic()
        by_uid = {one.uid: one for one in found}
        with self._lock:
            for pod in filter(None, map(self._pods.get, requested)):
                pod.replica = by_uid.get(pod.uid)
                if pod.answered is None:
                    pod.answered = now
            if by_uid and not self._found_any:
                self._found_any = True
                for pod in self._pods.values():
                    pod.guess = None
        if by_uid:
            known = {**{uid: one for uid, one in self._known.items() if uid not in by_uid}, **by_uid}
            self._known = dict(list(known.items())[-_MOST_STORED:])
            self._file.save(list(self._known.values()))

    def abandon(self) -> None:
        """Stop waiting for names: the agent stops, or the server has no endpoint for pods."""
        with self._lock:
            self._patient = False
            for pod in self._pods.values():
                pod.abandoned = True

    def _defer(self, uid: str, record: JobRecord | EventRecord, now: float) -> bool:
        """Store a record of a pod for ``_release``. False for a record of no pod."""
        if not uid:
            return False
        pod = self._get_pod(uid, now)
        if isinstance(record, JobRecord):
            pod.jobs.append(record)
        else:
            pod.events.append(record)
        if not pod.resolved:
            pod.abandoned = max(len(pod.jobs), len(pod.events)) > MOST_RECORDS
        return True

    def _release(self) -> Records:
        jobs: list[JobRecord] = []
        events: list[EventRecord] = []
        for pod in self._pods.values():
            if pod.resolved:
                jobs += filter(None, map(pod.rename_job, pod.jobs))
                events += map(pod.rename_event, pod.events)
                pod.jobs.clear()
                pod.events.clear()
        return Records(jobs=jobs, events=events)

    def _find_pods(self, now: float) -> None:
        for process in self._processes():
            member = process.member
            if member.pod_id and parse_pod_job(member.owner.job):
                pod = self._get_pod(member.pod_id, now)
                if not self._found_any:
                    pod.guess = pod.guess or member.guess

    def _get_pod(self, uid: str, now: float) -> Pod:
        pod = self._pods.get(uid)
        if pod is None:
            self._pods[uid] = pod = Pod(uid, now, replica=self._known.get(uid), abandoned=not self._patient)
        pod.used = now
        return pod

    def _abandon_overdue(self, now: float) -> None:
        """Stop waiting for pods that waited long enough, or for which there is no room."""
        waiting = sorted((pod for pod in self._pods.values() if not pod.resolved), key=lambda pod: pod.began)
        room = MOST_SAMPLES - sum(len(pod.samples) for pod in waiting)
        for pod in waiting:
            overdue = pod.answered is not None and now - pod.answered >= PATIENCE
            self._any_overdue = self._any_overdue or overdue
            watcher_absent = self._any_overdue and not self._found_any
            if overdue or watcher_absent or room < 0 or now - pod.began >= LONGEST:
                pod.abandoned = True
                room += len(pod.samples)

    def _forget(self, now: float) -> None:
        if any(now - pod.used >= _FORGET for pod in self._pods.values()) or len(self._pods) > _MOST:
            newest = sorted(self._pods.values(), key=lambda pod: pod.used)[-_MOST:]
            self._pods = {pod.uid: pod for pod in newest if pod.waits or now - pod.used < _FORGET}
