"""Kubernetes cluster as a ``Scheduler``: the changes of its watches."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.kubernetes.cluster_state import ClusterJob, ClusterState, sort_pods
from jobmeter.collect.scheduler.kubernetes.informer import Informer
from jobmeter.collect.scheduler.kubernetes.kinds import OwnerKind
from jobmeter.collect.scheduler.kubernetes.objects import PodObject, Workload
from jobmeter.collect.scheduler.kubernetes.owners import OwnerPresence
from jobmeter.collect.scheduler.kubernetes.records import (
    build_job_record,
    iterate_replica_records,
    iterate_scheduled_events,
)
from jobmeter.collect.scheduler.kubernetes.saved_state import SavedJob, SavedState, make_saved_state_file
from jobmeter.errors import InvalidRequestError, UnavailableError
from jobmeter.model.job import JobState
from jobmeter.model.record import EventRecord, JobRecord, Records, ReplicaRecord, check_record

_log = logging.getLogger(__name__)
_Sent = JobRecord | ReplicaRecord | EventRecord


class KubernetesScheduler(Scheduler):
    """Scheduler of a Kubernetes cluster. ``owners`` are the informers of workloads by kind."""

    def __init__(
        self,
        cluster: str,
        pods: Informer[PodObject],
        owners: Iterable[tuple[OwnerKind, Informer[Workload]]],
        *,
        state: Path | None = None,
        by_namespace: bool = False,
        namespaces: frozenset[str] = frozenset(),
        user_label: str = "",
    ) -> None:
        """``state`` is the folder that stores names. For the others see ``ClusterState``."""
        self._cluster = cluster
        self._pods = pods
        self._owners = list(owners)
        self._user_label = user_label
        self._file = make_saved_state_file(state)
        saved = self._file.load() or SavedState()
        self._cluster_state = ClusterState(saved, by_namespace=by_namespace, namespaces=namespaces)
        self._sent: dict[str, dict[tuple[str, int], bytes]] = {}
        self._started = self._listed = False

    def poll(self, now_ms: int) -> Records:
        """Return the changes since the last call."""
        self._begin()
        self._file.save(self._cluster_state.saved)  # the records of the last call are in the outbox by now
        for kind, informer in self._owners:
            self._take_workloads(kind, informer, now_ms)
        self._take_pods(now_ms)
        jobs = [] if self._listed else [_end_unobserved_job(lost) for lost in self._cluster_state.list_lost()]
        self._listed = True
        events: list[EventRecord] = []
        for job in list(self._cluster_state.take_changed()):
            changes = self._take_changes(job)
            jobs += changes.jobs
            events += changes.events
        if not jobs and self._pods.problem:
            # The informers have their own backoff, so the poll does not slow down.
            raise UnavailableError(self._pods.problem, retry_after_ms=0)
        return Records(jobs=jobs, events=events)

    def describe_problem(self) -> str:
        """Return the reason of missing data; empty if it is complete."""
        if self._pods.problem:
            return self._pods.problem
        problem = next((informer.problem for _, informer in self._owners if informer.problem), "")
        return f"{problem}; jobs are reported without the missing data" if problem else ""

    def close(self) -> None:
        """Stop the informers."""
        for informer in self._list_informers():
            informer.stop()

    def _list_informers(self) -> list[Informer[PodObject] | Informer[Workload]]:
        return [*(informer for _, informer in self._owners), self._pods]

    def _begin(self) -> None:
        informers = self._list_informers()
        if not self._started:
            for informer in informers:
                informer.start()
            self._started = True
        for informer in informers:
            if not self._listed and not informer.wait_ready():
                raise UnavailableError(informer.problem or "the API server has not answered yet", retry_after_ms=0)

    def _take_workloads(self, kind: OwnerKind, informer: Informer[Workload], now_ms: int) -> None:
        for change in informer.take():
            if change.found is not None:
                self._cluster_state.update_workload(kind, change.found)
            elif change.uids is not None:
                self._cluster_state.remove_missing_workloads(kind, change.uids, now_ms)
            else:
                self._cluster_state.delete_workload(change.uid, now_ms, OwnerPresence.DELETED)

    def _take_pods(self, now_ms: int) -> None:
        behind = [kind for kind, informer in self._owners if informer.problem]
        self._cluster_state.retry_waiting(now_ms, behind)
        together: list[PodObject] = []
        for change in self._pods.take():
            if change.found is not None:
                together.append(change.found)
                continue
            self._cluster_state.update_pods(together if change.uids is None else sort_pods(together), now_ms, behind)
            together = []
            if change.uids is not None:
                self._cluster_state.remove_missing_pods(change.uids)
            else:
                self._cluster_state.delete_pod(change.uid, OwnerPresence.DELETED)
        self._cluster_state.update_pods(together, now_ms, behind)

    def _take_new_events(self, job: ClusterJob) -> list[EventRecord]:
        """Return the unreported events of the pods of a job."""
        sent = self._sent.setdefault(job.root.key, {})
        found = iterate_scheduled_events(job, self._cluster)
        return [event for uid, event in found if _note_change(sent, (f"scheduled {uid}", 0), event)]

    def _take_changes(self, job: ClusterJob) -> Records:
        """Return the unreported part of a job: its record, the replicas that changed, and events of its pods."""
        key = job.root.key
        sent = self._sent.setdefault(key, {})
        head = build_job_record(job, self._cluster, self._user_label)
        fresh = [
            one
            for one in iterate_replica_records(job, self._cluster)
            if _note_change(sent, (one.name, one.attempt), one)
        ]
        events = self._take_new_events(job)
        changed = _note_change(sent, ("", 0), head)
        if head.state is not None and head.state.finished:
            self._cluster_state.forget(job)
            if key not in self._cluster_state.jobs:
                del self._sent[key]
        record = msgspec.structs.replace(head, replicas=list(fresh))
        if not changed and not fresh and not events:
            return Records()
        try:
            return Records(jobs=[check_record(record)], events=events)
        except InvalidRequestError as error:
            _log.warning(
                "%s %s/%s cannot be reported: %s", job.root.kind, job.root.namespace, job.root.name, error.message
            )
            return Records()


def _note_change(sent: dict[tuple[str, int], bytes], key: tuple[str, int], record: _Sent) -> bool:
    body = msgspec.json.encode(record)
    if sent.get(key) == body:
        return False
    sent[key] = body
    return True


def _end_unobserved_job(lost: SavedJob) -> JobRecord:
    """Return the record of a job that ended unobserved and no longer exists in the cluster."""
    last = {place.replica: (uid, place) for uid, place in lost.pods.items()}
    replicas: list[ReplicaRecord | str] = [
        ReplicaRecord(name=name, attempt=place.first + place.runs - 1, pod_id=uid, state=JobState.UNKNOWN)
        for name, (uid, place) in last.items()
    ]
    return JobRecord(job_id=lost.job_id, project=lost.project or None, state=JobState.UNKNOWN, replicas=replicas)
