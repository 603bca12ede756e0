"""Pod on this node: data that waits for the name of its job, and the renaming of samples and records."""

from dataclasses import dataclass, field, replace

import msgspec

from jobmeter.collect.base import Owner
from jobmeter.model.pod import PodReplica, make_pod_job
from jobmeter.model.record import EventRecord, JobRecord, ReplicaRecord
from jobmeter.model.sample import Sample

MOST_RECORDS = 64
"""Most waiting records of a pod. Beyond that they are sent under the pod's own name."""


@dataclass(slots=True)
class Pod:
    """Pod. Times are seconds of a monotonic clock.

    ``guess`` is the replica in its host name, if any; ``replica`` the watcher's. The pod is ``abandoned`` after the
    longest wait. ``answered`` is the time of the server's first answer that did not know it.
    """

    uid: str
    began: float
    guess: Owner | None = None
    replica: PodReplica | None = None
    abandoned: bool = False
    answered: float | None = None
    requested: float | None = None
    used: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    jobs: list[JobRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)

    @property
    def resolved(self) -> bool:
        """True if its samples are sent without waiting."""
        return self.replica is not None or self.abandoned

    @property
    def waits(self) -> bool:
        """True if any of its data waits."""
        return bool(self.samples or self.jobs or self.events)

    def find_owner(self, attempt: int) -> Owner:
        """Return the replica of a run of its containers, as known now."""
        if self.replica is not None:
            found = self.replica
            return Owner(found.job, found.replica, found.first + attempt, found.project)
        if self.guess is not None:
            return replace(self.guess, attempt=attempt)
        return Owner(make_pod_job(self.uid), "worker-0", attempt)

    def rename_sample(self, sample: Sample) -> Sample:
        """Rename the sample to that replica."""
        series = sample.series
        owner = self.find_owner(series.attempt)
        renamed = replace(
            series,
            project=owner.project or series.project,
            job=owner.job,
            replica=owner.replica if series.replica else "",
            attempt=owner.attempt,
        )
        return sample._replace(series=renamed)

    def rename_event(self, event: EventRecord) -> EventRecord:
        """Rename the event to that replica."""
        owner = self.find_owner(event.attempt)
        return msgspec.structs.replace(
            event,
            project=owner.project or event.project,
            job=owner.job,
            replica=owner.replica if event.replica else "",
            attempt=owner.attempt,
        )

    def rename_job(self, record: JobRecord) -> JobRecord | None:
        """Rename the record to the job, with ranks and devices alone, which the watcher cannot know.

        None if nothing is left.
        """
        replicas = [self._make_replica(one) for one in record.replicas or () if isinstance(one, ReplicaRecord)]
        owner = self.find_owner(0)
        allocations = [msgspec.structs.replace(one, replica=owner.replica) for one in record.allocations or ()]
        if self.replica is None:
            return msgspec.structs.replace(record, job_id=owner.job, replicas=replicas, allocations=allocations)
        ranked = [one for one in replicas if one.rank is not None]
        if not ranked and not allocations:
            return None
        return JobRecord(
            job_id=owner.job, project=owner.project or record.project, replicas=list(ranked), allocations=allocations
        )

    def _make_replica(self, record: ReplicaRecord) -> ReplicaRecord:
        owner = self.find_owner(record.attempt)
        if self.replica is None:
            return msgspec.structs.replace(record, name=owner.replica)
        return ReplicaRecord(
            name=owner.replica,
            attempt=owner.attempt,
            rank=record.rank if self.replica.rank is None else None,
            cluster=record.cluster,
            node=record.node,
            pod_id=record.pod_id,
        )
