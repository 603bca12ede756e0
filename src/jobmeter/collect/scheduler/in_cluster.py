"""Adds the cluster to the ids of a scheduler's jobs, for a project where several clusters use the same ids."""

from dataclasses import replace

import msgspec

from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.model.cluster import job_in_cluster
from jobmeter.model.record import Records
from jobmeter.model.sample import Sample


class InCluster(Scheduler):
    """See ``Scheduler``."""

    def __init__(self, scheduler: Scheduler, cluster: str) -> None:
        self._scheduler = scheduler
        self._cluster = cluster

    def poll(self, now_ms: int) -> Records:
        """See ``Scheduler.poll``."""
        found = self._scheduler.poll(now_ms)
        jobs = [msgspec.structs.replace(one, job_id=self._named(one.job_id)) for one in found.jobs]
        events = [msgspec.structs.replace(one, job=self._named(one.job)) for one in found.events]
        return msgspec.structs.replace(found, jobs=jobs, events=events)

    def measure(self, now_ms: int) -> list[Sample]:
        """See ``Scheduler.measure``."""
        return [
            Sample(replace(one.series, job=self._named(one.series.job)), one.time_ms, one.value)
            for one in self._scheduler.measure(now_ms)
        ]

    def close(self) -> None:
        """See ``Scheduler.close``."""
        self._scheduler.close()

    def _named(self, job: str) -> str:
        return job_in_cluster(job, self._cluster) if job else ""
