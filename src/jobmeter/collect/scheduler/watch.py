"""Poll a scheduler every interval, report its state, and put its records and samples into the outbox."""

from dataclasses import replace
from threading import Event

import msgspec

from jobmeter.collect.outbox import Outbox
from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.health import SchedulerHealth
from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.cluster import make_cluster_job
from jobmeter.model.record import Records
from jobmeter.model.sample import Sample
from jobmeter.model.time import Clock
from jobmeter.wire.native.encode import make_records_frame, make_samples_frame

_LONGEST_REST = 300.0
"""Most seconds between two attempts while the scheduler does not answer."""
_MOST_IN_FRAME = 500
"""Most jobs in one frame. A server refuses bodies that are too long, each as a whole."""
_MOST_SAMPLES = 10_000


class SchedulerWatch:
    """Polls at most once per interval, less often while the scheduler does not answer. ``health`` gets each result."""

    def __init__(
        self, scheduler: Scheduler, outbox: Outbox, clock: Clock, interval_ms: int, health: SchedulerHealth
    ) -> None:
        self._scheduler = scheduler
        self._outbox = outbox
        self._clock = clock
        self._interval = interval_ms / 1000
        self._health = health
        self._failures = 0

    def run(self, stop: Event) -> None:
        """Poll now and every interval, until ``stop`` is set."""
        while True:
            began = self._clock.monotonic()
            self.poll_once()
            wait = min(self._interval * 2 ** min(self._failures, 16), max(_LONGEST_REST, self._interval))
            if stop.wait(max(began + wait - self._clock.monotonic(), 0.0)):
                return

    def poll_once(self) -> str:
        """Poll once. Return the reason of a failure, else an empty text."""
        try:
            self._spool_records(self._scheduler.poll(self._clock.now_ms()))
            self._spool_samples(self._scheduler.measure(self._clock.now_ms()))
        except JobmeterError as error:
            waits = not (isinstance(error, UnavailableError) and error.retry_after_ms == 0)
            self._failures = self._failures + 1 if waits else 0
            self._health.update(error.message)
            return error.message
        self._failures = 0
        self._health.update(self._scheduler.describe_problem())
        return ""

    def _spool_records(self, records: Records) -> None:
        for first in range(0, len(records.jobs), _MOST_IN_FRAME):
            self._outbox.put(make_records_frame(Records(jobs=records.jobs[first : first + _MOST_IN_FRAME])))
        if records.nodes or records.events:
            self._outbox.put(make_records_frame(Records(nodes=records.nodes, events=records.events)))

    def _spool_samples(self, samples: list[Sample]) -> None:
        for first in range(0, len(samples), _MOST_SAMPLES):
            self._outbox.put(make_samples_frame(samples[first : first + _MOST_SAMPLES]))


class ClusterScopedIds(Scheduler):
    """Scheduler that adds the cluster to job ids, for a project of several clusters with equal ids."""

    def __init__(self, scheduler: Scheduler, cluster: str) -> None:
        self._scheduler = scheduler
        self._cluster = cluster

    def poll(self, now_ms: int) -> Records:
        """Return the changes with cluster-scoped ids."""
        found = self._scheduler.poll(now_ms)
        jobs = [msgspec.structs.replace(one, job_id=self._name_cluster_job(one.job_id)) for one in found.jobs]
        events = [msgspec.structs.replace(one, job=self._name_cluster_job(one.job)) for one in found.events]
        return msgspec.structs.replace(found, jobs=jobs, events=events)

    def describe_problem(self) -> str:
        """Return the reason of missing data."""
        return self._scheduler.describe_problem()

    def measure(self, now_ms: int) -> list[Sample]:
        """Return the samples with cluster-scoped ids."""
        return [
            Sample(replace(one.series, job=self._name_cluster_job(one.series.job)), one.time_ms, one.value)
            for one in self._scheduler.measure(now_ms)
        ]

    def close(self) -> None:
        """Close the scheduler."""
        self._scheduler.close()

    def _name_cluster_job(self, job: str) -> str:
        return make_cluster_job(job, self._cluster) if job else ""
