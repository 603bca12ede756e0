"""Tests of schedulers whose job ids include their cluster."""

import pytest

from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.watch import ClusterScopedIds
from jobmeter.model.cluster import make_cluster_job
from jobmeter.model.record import EventRecord, JobRecord, Records, ReplicaRecord
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series, check_job_id


class Asking(Scheduler):
    """Scheduler with one job, one event of the job, and one event of its cluster."""

    def poll(self, now_ms):
        replica = ReplicaRecord(name="worker-0", cluster="beta")
        events = [EventRecord(time=now_ms, job=job, reason="OOMKilled", message="m") for job in ("21", "")]
        return Records(jobs=[JobRecord(job_id="21", name="train", replicas=[replica])], events=events)

    def close(self):
        pass


class Measuring(Asking):
    def measure(self, now_ms):
        return [Sample(Series("cpu.time", job="21", replica="worker-0"), now_ms, 1.0)]


def test_jobs_and_their_events_and_samples_go_by_their_cluster():
    found = ClusterScopedIds(Measuring(), "beta")
    reported = found.poll(5)
    assert [(job.job_id, job.name) for job in reported.jobs] == [("21@beta", "train")]
    assert [event.job for event in reported.events] == ["21@beta", ""]
    (sample,) = found.measure(5)
    assert (sample.series.job, sample.series.replica, sample.time_ms) == ("21@beta", "worker-0", 5)
    assert sample.series == Series("cpu.time", job="21@beta", replica="worker-0")


def test_one_that_measures_nothing_does_not_afterwards():
    assert ClusterScopedIds(Asking(), "beta").measure(5) == []


@pytest.mark.parametrize("job", ["21", "x" * 100, "x" * 128])
def test_an_id_with_its_cluster_is_an_id(job):
    found = make_cluster_job(job, "c" * 60)
    assert check_job_id(found) == found
    assert found != make_cluster_job(job, "c" * 59 + "d")
