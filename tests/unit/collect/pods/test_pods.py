"""Tests of the owners of a node's pods: how long samples wait for them, and the names under which they are sent."""

from collections import Counter

import msgspec
import pytest

from jobmeter.client.transport import Response
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.pods.jobs import LONGEST, MOST_SAMPLES, PATIENCE, PodJobs
from jobmeter.collect.pods.pod import MOST_RECORDS
from jobmeter.collect.pods.poll import PodPoller
from jobmeter.collect.process.stat import Key, ProcessStat
from jobmeter.errors import NotFoundError, UnavailableError
from jobmeter.model.job import JobState
from jobmeter.model.pod import MOST_PODS, NodePods, PodReplica, make_pod_job, parse_pod_job
from jobmeter.model.record import AllocationRecord, EventRecord, JobRecord, Records, ReplicaRecord
from jobmeter.model.sample import Sample

PLACE = NodeIdentity("n1", "c1")


def uid(number):
    return f"0a1b2c3d-0001-0002-0003-{number:012x}"


def process(number, guess=None):
    member = Member(
        owner=Owner(make_pod_job(uid(number)), "worker-0"),
        source=MembershipSource.KUBERNETES,
        pod_id=uid(number),
        guess=guess,
    )
    return Process(ProcessStat(Key(number, 1), 1, "S", 0, 1, 0), member)


def sample(number, value=1.0, attempt=0, time_ms=0):
    owner = Owner(make_pod_job(uid(number)), "worker-0", attempt)
    return Sample(PLACE.make_replica_series("cpu.time", owner), time_ms, value)


def named(samples):
    return [(one.series.project, one.series.job, one.series.replica, one.series.attempt, one.value) for one in samples]


class Seconds:
    """Monotonic clock that a test sets."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Seconds()


@pytest.fixture
def make(clock):
    def made(*processes, state=None):
        return PodJobs(lambda: processes, clock.monotonic, state)

    return made


def replica(number, job="two", name="worker-1", first=0, project="default", rank=None):
    return PodReplica(uid=uid(number), project=project, job=job, replica=name, first=first, rank=rank)


def test_samples_wait_until_their_job_is_found(make):
    pods = make(process(1), process(2))
    node = Sample(PLACE.make_node_series("node.cpu.time"), 0, 5.0)
    assert pods.rename_samples([sample(1), node, sample(2)]) == [node], "what is the node's does not wait"
    assert pods.waiting == 2
    assert pods.find_owner(Owner(make_pod_job(uid(1)), "worker-0")) is None
    assert pods.list_unresolved() == [uid(1), uid(2)]
    pods.answer([uid(1), uid(2)], [replica(1, first=2)])
    found = pods.rename_samples([sample(1, 2.0, attempt=1), sample(2, 9.0)])
    assert named(found) == [("default", "two", "worker-1", 3, 2.0), ("default", "two", "worker-1", 2, 1.0)]
    assert pods.waiting == 2
    assert pods.find_owner(Owner(make_pod_job(uid(1)), "worker-0", 1)) == Owner("two", "worker-1", 3, "default")
    assert pods.list_unresolved() == [uid(2)], "a pod is asked for until somebody knows it"


def test_samples_have_the_times_at_which_they_were_taken(make):
    pods = make(process(1))
    pods.rename_samples([sample(1, 1.0, time_ms=1000)])
    pods.rename_samples([sample(1, 2.0, time_ms=2000)])
    pods.answer([uid(1)], [replica(1)])
    found = pods.rename_samples([sample(1, 3.0, time_ms=3000)])
    assert sorted((one.time_ms, one.value) for one in found) == [(1000, 1.0), (2000, 2.0), (3000, 3.0)]


@pytest.mark.parametrize("watched", ["before", "after", "restarted"])
def test_where_there_is_a_watcher_no_pod_names_its_own_job(make, clock, tmp_path, watched):
    """A pod chooses its host name, which could name a job of another namespace."""
    hostile = process(2, guess=Owner("bert", "worker-3"))
    if watched == "restarted":
        make(state=tmp_path).answer([], [replica(7)])
    pods = make(hostile, state=tmp_path)
    if watched == "before":
        pods.answer([], [replica(7)])
    pods.rename_samples([sample(2)])
    pods.answer(pods.list_unresolved(), [replica(7)] if watched == "after" else [])
    clock.advance(PATIENCE)
    assert {one[1] for one in named(pods.rename_samples([sample(2)]))} == {make_pod_job(uid(2))}
    assert pods.find_owner(hostile.member.owner).job == make_pod_job(uid(2))


def test_an_unknown_pod_is_reported_under_its_own_name_after_a_minute(make, clock):
    pods = make(process(1), process(2))
    pods.answer([], [replica(7)])  # the answer shows that a watcher runs
    pods.rename_samples([sample(1), sample(2)])
    pods.answer(pods.list_unresolved(), [])
    clock.advance(PATIENCE - 1)
    assert pods.rename_samples([]) == []
    clock.advance(1)
    found = named(pods.rename_samples([sample(1, 2.0)]))
    assert sorted(found) == [
        ("", make_pod_job(uid(1)), "worker-0", 0, 1.0),
        ("", make_pod_job(uid(1)), "worker-0", 0, 2.0),
        ("", make_pod_job(uid(2)), "worker-0", 0, 1.0),
    ]
    assert pods.waiting == 0
    clock.advance(60)
    assert pods.list_unresolved() == [uid(1), uid(2)], "asked again, rarely"
    assert pods.list_unresolved() == []
    pods.answer([uid(1)], [replica(1)])
    assert named(pods.rename_samples([sample(1, 3.0)])) == [("default", "two", "worker-1", 0, 3.0)]


def test_without_a_watcher_only_the_first_pod_waits(make, clock):
    pods = make(process(1), process(2))
    pods.rename_samples([sample(1)])
    pods.answer([uid(1)], [])
    clock.advance(PATIENCE)
    assert len(pods.rename_samples([])) == 1
    pods.rename_samples([sample(2)])
    assert named(pods.rename_samples([sample(2, 2.0)])) == [("", make_pod_job(uid(2)), "worker-0", 0, 2.0)]


def test_while_the_server_is_away_pods_wait_longer_and_not_for_ever(make, clock):
    pods = make(process(1))
    pods.rename_samples([sample(1)])
    clock.advance(PATIENCE * 2)
    assert pods.rename_samples([]) == []
    clock.advance(LONGEST)
    assert len(pods.rename_samples([])) == 1


def test_too_many_samples_push_out_the_pod_that_waits_longest(make, clock):
    pods = make(process(1), process(2))
    pods.rename_samples([sample(1, float(value)) for value in range(10)])
    clock.advance(1)
    found = pods.rename_samples([sample(2, float(value)) for value in range(MOST_SAMPLES - 5)])
    assert Counter(one.series.job for one in found) == {make_pod_job(uid(1)): 10}
    assert pods.waiting == MOST_SAMPLES - 5


def test_records_wait_too_and_say_only_what_the_watcher_does_not(make):
    pods = make(process(1))
    start = JobRecord(
        job_id=make_pod_job(uid(1)),
        type="Pod",
        replicas=[ReplicaRecord(name="worker-0", attempt=1, rank=4, node="n1", pod_id=uid(1), start=5)],
    )
    end = msgspec.structs.replace(
        start, replicas=[ReplicaRecord(name="worker-0", pod_id=uid(1), state=JobState.UNKNOWN, start=5, end=9)]
    )
    device = JobRecord(
        job_id=make_pod_job(uid(1)),
        allocations=[AllocationRecord(replica="worker-0", node="n1", device="gpu0", start=5, source="process")],
    )
    event = EventRecord(time=5, job=make_pod_job(uid(1)), replica="worker-0", attempt=1, reason="OOMKilled")
    other = JobRecord(job_id="21")
    found = pods.rename_records(Records(jobs=[start, other, device, end], events=[event]))
    assert (found.jobs, found.events) == ([other], [])
    assert pods.take_released() == Records()
    pods.answer([uid(1)], [replica(1, first=3, project="ml")])
    found = pods.take_released()
    ranks, devices = found.jobs
    assert ranks == JobRecord(
        job_id="two",
        project="ml",
        replicas=[ReplicaRecord(name="worker-1", attempt=4, rank=4, node="n1", pod_id=uid(1))],
    )
    assert (devices.job_id, devices.allocations[0].replica, devices.replicas) == ("two", "worker-1", [])
    (event,) = found.events
    assert (event.project, event.job, event.replica, event.attempt) == ("ml", "two", "worker-1", 4)
    assert pods.take_released() == Records()


def test_ranks_reported_by_the_watcher_are_not_repeated(make):
    pods = make(process(1))
    pods.answer([], [])
    pods.rename_samples([])
    pods.answer([uid(1)], [replica(1, rank=2)])
    record = JobRecord(job_id=make_pod_job(uid(1)), replicas=[ReplicaRecord(name="worker-0", rank=0)])
    assert pods.rename_records(Records(jobs=[record])).jobs == []


def test_records_of_a_pod_by_its_own_name_are_whole(make):
    pods = make(process(1, guess=Owner("bert", "worker-3")))
    pods.abandon()
    pods.rename_samples([])
    record = JobRecord(
        job_id=make_pod_job(uid(1)), type="Pod", replicas=[ReplicaRecord(name="worker-0", attempt=1, start=5)]
    )
    (found,) = pods.rename_records(Records(jobs=[record])).jobs
    assert found == JobRecord(
        job_id="bert", type="Pod", replicas=[ReplicaRecord(name="worker-3", attempt=1, start=5)], allocations=[]
    )


def test_records_that_wait_are_bounded(make):
    pods = make(process(1))
    record = JobRecord(job_id=make_pod_job(uid(1)), replicas=[ReplicaRecord(name="worker-0")])
    assert pods.rename_records(Records(jobs=[record] * MOST_RECORDS)).jobs == []
    assert len(pods.rename_records(Records(jobs=[record])).jobs) == MOST_RECORDS + 1


def test_the_cache_outlives_the_agent(make, tmp_path):
    pods = make(process(1), state=tmp_path)
    pods.rename_samples([sample(1)])
    pods.answer([uid(1)], [replica(1)])
    again = make(process(1), state=tmp_path)
    assert named(again.rename_samples([sample(1)])) == [("default", "two", "worker-1", 0, 1.0)]
    assert again.list_unresolved() == []
    (tmp_path / "pods.json").write_text("[{")
    assert make(process(1), state=tmp_path).rename_samples([sample(1)]) == []


def test_deleted_pods_are_dropped(make, clock):
    pods = make()
    pods.rename_samples([sample(1)])
    assert pods.list_unresolved() == [uid(1)]
    clock.advance(3_599)
    assert len(pods.rename_samples([])) == 1
    assert pods.list_unresolved() == [uid(1)]
    clock.advance(61)
    pods.rename_samples([])
    assert pods.list_unresolved() == []


@pytest.mark.parametrize("job", ["pod-1", "pod", "two", f"pod-{uid(1)}x", f"pod-{uid(1)}".upper()])
def test_jobs_that_only_look_like_pods_do_not_wait(make, job):
    one = Sample(PLACE.make_replica_series("cpu.time", Owner(job, "worker-0")), 0, 1.0)
    assert make().rename_samples([one]) == [one]
    assert parse_pod_job(job) == ""


class Server:
    """Server that answers with the owners that it knows, or with an error."""

    def __init__(self, *known_pods, error=None):
        self.known_pods, self.error, self.paths = known_pods, error, []

    def request(self, method, path, body=None, headers=None):
        self.paths.append((method, path))
        if self.error:
            raise self.error
        return Response(200, {}, msgspec.json.encode(NodePods(list(self.known_pods))))


def test_the_server_is_queried_only_while_a_pod_is_unknown(make):
    pods, server = make(process(1)), Server(replica(1))
    poller = PodPoller(NodeIdentity("n/1", "c1"), lambda: server, pods, 10_000)
    assert poller.poll_once() == 0
    pods.rename_samples([sample(1)])
    assert poller.poll_once() == 1
    assert server.paths == [("GET", f"/api/jobmeter/v1/nodes/n%2F1/pods?cluster=c1&uid={uid(1)}")]
    assert poller.poll_once() == 0
    assert len(pods.rename_samples([])) == 1


def test_many_pods_are_requested_in_parts(make):
    pods, server = make(*map(process, range(MOST_PODS + 5))), Server(replica(500))
    poller = PodPoller(PLACE, lambda: server, pods, 10_000)
    pods.rename_samples([])
    assert poller.poll_once() == MOST_PODS
    assert uid(MOST_PODS + 1) in pods.list_unresolved(), "those that were not asked for come first"


def test_the_end_polls_once_more_and_holds_nothing_back(make):
    pods, server = make(process(1), process(2)), Server(replica(1))
    pods.rename_samples([sample(1), sample(2)])
    PodPoller(PLACE, lambda: server, pods, 10_000).poll_last()
    assert {one.series.job for one in pods.rename_samples([])} == {"two", make_pod_job(uid(2))}


def test_an_older_server_is_not_waited_for(make):
    pods, server = make(process(1), process(2)), Server(error=NotFoundError("no such path"))
    poller = PodPoller(PLACE, lambda: server, pods, 10_000)
    pods.rename_samples([sample(1)])
    poller.poll_last()
    poller.poll_last()
    assert len(server.paths) == 1
    assert len(pods.rename_samples([sample(2)])) == 2


def test_a_server_that_does_not_answer_is_tried_again(make):
    pods, server = make(process(1)), Server(replica(1), error=UnavailableError("away"))
    poller = PodPoller(PLACE, lambda: server, pods, 10_000)
    pods.rename_samples([sample(1)])
    with pytest.raises(UnavailableError):
        poller.poll_once()
    server.error = None
    poller.poll_once()
    assert named(pods.rename_samples([])) == [("default", "two", "worker-1", 0, 1.0)]
