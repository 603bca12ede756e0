"""Tests of records on both databases: merging field by field."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.allocations import list_allocations
from tests.support.registries import observation

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.job import AllocationSource, Checkpoint, Job, JobState, JobView
from jobmeter.model.record import AllocationRecord, CheckpointRecord, JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.registry.base import Registry

NOW = 1_790_000_000_000
ALLOCATION = AllocationRecord(replica="w", node="n", device="gpu0", start=NOW - 100, source="scheduler")


def put(registry: Registry, *jobs: JobRecord, project: str = "default", now: int = NOW) -> None:
    assert registry.record(project, Records(jobs=list(jobs)), now) == len(jobs)


def view(registry: Registry, job: str = "j", now: int = NOW) -> JobView:
    [found] = registry.find_job(None, job, now)
    return found


def test_a_whole_record_comes_back(registry: Registry) -> None:
    put(
        registry,
        JobRecord(
            job_id="j",
            name="train größe",
            type="PyTorchJob",
            state=JobState.SUCCEEDED,
            user="ana",
            resource_group="rg",
            workspace="ws",
            created="2026-09-01T00:00:00Z",
            start="2026-09-01T00:01:00Z",
            end=1_788_224_520_000,
            error="",
            exit_code=0,
            command="python train.py",
            instance_type={"id": "ecs.gn7", "cpu": 8, "memory": 64 * 2**30, "flavor": "x"},
            limits={"cpu": 8, "memory.limit": 1e9},
            labels={"team": "a"},
        ),
    )
    job = view(registry).job
    assert msgspec.to_builtins(job) == {
        "id": "j",
        "project": "default",
        "name": "train größe",
        "type": "PyTorchJob",
        "state": "Succeeded",
        "user": "ana",
        "resource_group": "rg",
        "workspace": "ws",
        "created": 1_788_220_800_000,
        "start": 1_788_220_860_000,
        "end": 1_788_224_520_000,
        "exit_code": 0,
        "command": "python train.py",
        "instance_type": {"id": "ecs.gn7", "cpu": 8.0, "memory": 64 * 2**30, "extra": {"flavor": "x"}},
        "limits": {"cpu.limit": 8.0, "memory.limit": 1e9},
        "labels": {"team": "a"},
        "updated": NOW,
        "recorded": True,
    }


def test_the_pod_of_each_attempt_comes_back(registry: Registry) -> None:
    attempts = [ReplicaRecord(name="w", attempt=at, pod=f"train-{at}", pod_id=f"uid-{at}") for at in range(2)]
    put(registry, JobRecord(job_id="j", replicas=[*attempts, ReplicaRecord(name="other")]))
    put(registry, JobRecord(job_id="j", replicas=[ReplicaRecord(name="w", attempt=1, state=JobState.RUNNING)]))
    found = {(one.name, one.attempt): (one.pod, one.pod_id) for one in view(registry).replicas}
    assert found == {("w", 0): ("train-0", "uid-0"), ("w", 1): ("train-1", "uid-1"), ("other", 0): ("", "j-other")}


def test_what_a_later_record_leaves_out_stays(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", name="first", user="ana", start=NOW - 1000, state=JobState.RUNNING))
    put(registry, JobRecord(job_id="j", state=JobState.FAILED, end=NOW, error="out of memory", exit_code=137))
    job = view(registry).job
    assert (job.name, job.user, job.start) == ("first", "ana", NOW - 1000)
    assert (job.state, job.end, job.error, job.exit_code) == (JobState.FAILED, NOW, "out of memory", 137)


def test_an_opening_delivered_again_does_not_revive_a_finished_job(registry: Registry) -> None:
    opening = JobRecord(job_id="j", start=NOW - 5000, state=JobState.RUNNING)
    put(registry, opening)
    put(registry, JobRecord(job_id="j", end=NOW, state=JobState.SUCCEEDED))
    put(registry, opening)
    job = view(registry).job
    assert (job.state, job.start, job.end) == (JobState.SUCCEEDED, NOW - 5000, NOW)


def test_a_job_started_again_after_its_end_runs(registry: Registry) -> None:
    put(
        registry, JobRecord(job_id="j", start=NOW - 5000, end=NOW - 3000, state=JobState.FAILED, exit_code=1, error="x")
    )
    put(registry, JobRecord(job_id="j", start=NOW - 1000, state=JobState.RUNNING))
    job = view(registry).job
    assert (job.state, job.start, job.end, job.exit_code, job.error) == (JobState.RUNNING, NOW - 5000, None, None, "")


def test_the_same_job_twice_in_one_batch_merges_in_order(registry: Registry) -> None:
    put(
        registry,
        JobRecord(job_id="j", name="a", state=JobState.RUNNING, start=NOW - 10),
        JobRecord(job_id="i", name="other"),
        JobRecord(job_id="j", name="b", state=JobState.STOPPED, end=NOW),
    )
    assert (view(registry).job.name, view(registry).job.state) == ("b", JobState.STOPPED)


def test_two_projects_may_use_one_job_id(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", name="one"), project="a")
    put(registry, JobRecord(job_id="j", name="two"), project="b")
    assert [found.job.name for found in registry.find_job(None, "j", NOW)] == ["one", "two"]
    assert [found.name for found in registry.find_job_head(frozenset({"b"}), "j", NOW)] == ["two"]
    assert registry.find_job(frozenset({"c"}), "j", NOW) == []
    assert registry.find_job(frozenset(), "j", NOW) == []


def test_a_record_of_another_project_is_refused_whole(registry: Registry) -> None:
    jobs = [JobRecord(job_id="ok"), JobRecord(job_id="j", project="b")]
    with pytest.raises(InvalidRequestError) as refused:
        registry.record("a", Records(jobs=jobs), NOW)
    assert refused.value.field == "project"
    assert registry.find_job(None, "ok", NOW) == []
    put(registry, JobRecord(job_id="j", project="b"), project="b")


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (JobRecord(job_id="j", start=NOW, end=NOW - 1), "end"),
        (JobRecord(job_id="j", exit_code=2**63), "exit_code"),
        (JobRecord(job_id="j", instance_type={"cpu": "many"}), "instance_type"),
        (JobRecord(job_id="j", limits={"cpu": -1}), "limits.cpu"),
        (JobRecord(job_id="j", replicas=[ReplicaRecord(name="r", start=NOW, end=1)]), "replicas.end"),
        (JobRecord(job_id="j", allocations=[msgspec.structs.replace(ALLOCATION, end=NOW - 101)]), "allocations.end"),
        (JobRecord(job_id="j", allocations=[msgspec.structs.replace(ALLOCATION, source="x")]), "allocations.source"),
    ],
)
def test_a_bad_field_is_named(registry: Registry, record: JobRecord, field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        registry.record("default", Records(jobs=[record]), NOW)
    assert refused.value.field == field
    assert registry.find_job(None, "j", NOW) == []


@pytest.mark.parametrize(("field", "length"), [("name", 257), ("user", 257), ("command", 65_537), ("error", 65_537)])
def test_a_text_has_a_limit(registry: Registry, field: str, length: int) -> None:
    with pytest.raises(LimitExceededError) as refused:
        put(registry, msgspec.convert({"job_id": "j", field: "x" * length}, JobRecord))
    assert refused.value.field == field
    put(registry, msgspec.convert({"job_id": "j", field: "ü" * (length - 1)}, JobRecord))


def test_any_text_can_be_stored(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", error="a\0b'\"\\%_;--", labels={"k": "a\0b"}))
    job = view(registry).job
    assert job.error == "a\N{REPLACEMENT CHARACTER}b'\"\\%_;--"
    assert job.labels == {"k": "a\0b"}


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (JobRecord(job_id="j"), JobState.QUEUED),
        (JobRecord(job_id="j", start=NOW), JobState.RUNNING),
        (JobRecord(job_id="j", start=NOW - 1, end=NOW), JobState.UNKNOWN),
        (JobRecord(job_id="j", end=NOW, exit_code=0), JobState.SUCCEEDED),
        (JobRecord(job_id="j", end=NOW, exit_code=2), JobState.FAILED),
    ],
)
def test_a_record_without_a_state_gets_the_one_it_implies(
    registry: Registry, record: JobRecord, state: JobState
) -> None:
    put(registry, record)
    assert view(registry).job.state == state


def test_replicas_by_name_and_in_full(registry: Registry) -> None:
    worker = ReplicaRecord(
        name="worker-1", rank=1, node="n1", cluster="c", pod_id="pod-x", state=JobState.RUNNING, start=NOW - 50
    )
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING, replicas=["worker-0", worker, "worker-10", "worker-2"]))
    put(
        registry, JobRecord(job_id="j", replicas=[ReplicaRecord(name="worker-1", end=NOW, exit_code=3, reason="Error")])
    )
    replicas = view(registry).replicas
    assert [replica.name for replica in replicas] == ["worker-0", "worker-1", "worker-2", "worker-10"]
    assert [replica.pod_id for replica in replicas] == ["j-worker-0", "pod-x", "j-worker-2", "j-worker-10"]
    one = replicas[1]
    assert (one.rank, one.node, one.cluster, one.start, one.end) == (1, "n1", "c", NOW - 50, NOW)
    assert (one.exit_code, one.reason, one.state) == (3, "Error", JobState.RUNNING)


def test_attempts_of_a_replica_stand_apart(registry: Registry) -> None:
    put(
        registry,
        JobRecord(
            job_id="j",
            replicas=[
                ReplicaRecord(name="w", attempt=1, state=JobState.RUNNING, start=NOW),
                ReplicaRecord(name="w", state=JobState.FAILED, start=NOW - 100, end=NOW - 50),
            ],
        ),
    )
    assert [(r.attempt, r.state, r.end) for r in view(registry).replicas] == [
        (0, JobState.FAILED, NOW - 50),
        (1, JobState.RUNNING, None),
    ]


def test_a_late_opening_does_not_revive_a_finished_replica(registry: Registry) -> None:
    opening = ReplicaRecord(name="w", state=JobState.RUNNING, start=NOW - 100)
    put(registry, JobRecord(job_id="j", replicas=[opening]))
    put(registry, JobRecord(job_id="j", replicas=[ReplicaRecord(name="w", state=JobState.SUCCEEDED, end=NOW)]))
    put(registry, JobRecord(job_id="j", replicas=[opening]))
    assert view(registry).replicas[0].state == JobState.SUCCEEDED


def test_devices_of_a_replica_become_allocations(registry: Registry) -> None:
    worker = ReplicaRecord(name="w", rank=4, node="n1", start=NOW - 100, devices=["gpu1", "gpu0"])
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING, replicas=[worker]))
    found = view(registry).allocations
    assert [(a.replica, a.node, a.device, a.start, a.end, a.rank, a.source) for a in found] == [
        ("w", "n1", "gpu0", NOW - 100, None, 4, AllocationSource.RECORD),
        ("w", "n1", "gpu1", NOW - 100, None, 4, AllocationSource.RECORD),
    ]
    put(registry, JobRecord(job_id="j", replicas=[msgspec.structs.replace(worker, end=NOW - 10)]))
    put(registry, JobRecord(job_id="j", replicas=[worker]))
    assert [(a.start, a.end) for a in list_allocations(registry, "default", "j")] == [(NOW - 100, NOW - 10)] * 2


def test_devices_take_the_start_of_the_job_when_the_replica_names_none(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", start=NOW - 77, replicas=[ReplicaRecord(name="w", node="n", devices=["gpu0"])]))
    put(registry, JobRecord(job_id="i", replicas=[ReplicaRecord(name="w", node="n", devices=["gpu0"])]))
    assert view(registry, "j").allocations[0].start == NOW - 77
    assert view(registry, "i").allocations[0].start == NOW


def test_an_allocation_that_nobody_ended_ends_with_its_job(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", state=JobState.RUNNING, allocations=[ALLOCATION]))
    assert view(registry).allocations[0].end is None
    put(registry, JobRecord(job_id="j", state=JobState.SUCCEEDED, end=NOW - 5))
    assert view(registry).allocations[0].end == NOW - 5
    assert list_allocations(registry, "default", "j")[0].end == NOW - 5


def test_nodes_are_described_and_listed(registry: Registry) -> None:
    records = Records(nodes=[NodeRecord(name="n1", info={"cores": 8}), NodeRecord(name="n1", cluster="c2")])
    assert registry.record("default", records, NOW) == 2
    alone = observation(5, NOW + 9, job="", replica="", node="n1")
    registry.observe([alone], NOW)
    registry.record("default", Records(nodes=[NodeRecord(name="n1")]), NOW)
    assert [(n.name, n.cluster, n.first_seen, n.last_seen, n.info) for n in registry.list_nodes(None)] == [
        ("n1", "", 5, NOW + 9, {"cores": 8}),
        ("n1", "c2", NOW, NOW, {}),
    ]
    assert registry.list_nodes(frozenset({"other"})) == []


def test_a_forgotten_job_is_gone_with_all_its_parts(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", replicas=[ReplicaRecord(name="w", node="n", devices=["gpu0"])]))
    assert registry.delete_job("other", "j") is False
    assert registry.delete_job("default", "j") is True
    assert registry.delete_job("default", "j") is False
    assert registry.find_job(None, "j", NOW) == []
    assert list_allocations(registry, "default", "j") == []
    put(registry, JobRecord(job_id="j"))
    assert view(registry) == JobView(
        job=Job(id="j", state=JobState.QUEUED, recorded=True, updated=NOW), replicas=[], allocations=[]
    )


def test_extra_is_merged_key_by_key_and_null_takes_a_key_back(registry: Registry) -> None:
    put(
        registry,
        JobRecord(job_id="j", extra={"pai_dlc": {"Priority": 1, "Settings": {"a": [1, None]}}, "foas": {"x": 1}}),
    )
    put(
        registry,
        JobRecord(job_id="j", extra={"pai_dlc": {"Priority": 2, "None": None}}),
        JobRecord(job_id="j", extra={"foas": {"x": None}, "baseten": {"größe": "\0"}}),
        JobRecord(job_id="j", name="n"),
    )
    job = view(registry).job
    assert job.extra == {"pai_dlc": {"Priority": 2, "Settings": {"a": [1, None]}}, "baseten": {"größe": "\0"}}
    assert job.name == "n"


def test_checkpoints_are_merged_by_id(registry: Registry) -> None:
    first = CheckpointRecord(id="c-1", created="2026-09-01T00:00:00Z", type="full", size=7, files=["s3://b/1"])
    put(registry, JobRecord(job_id="j", checkpoints=[first, CheckpointRecord(id="c-2")]))
    put(registry, JobRecord(job_id="j", checkpoints=[CheckpointRecord(id="c-2", base_model="m", extra={"k": 1})]))
    put(registry, JobRecord(job_id="j", checkpoints=[]))
    assert view(registry).job.checkpoints == [
        Checkpoint(id="c-1", created=1_788_220_800_000, type="full", size=7, files=["s3://b/1"]),
        Checkpoint(id="c-2", base_model="m", extra={"k": 1}),
    ]


def test_what_a_job_holds_is_bounded_in_all_records_together(registry: Registry) -> None:
    half = {"pai_dlc": {"a": "x" * 150_000}}
    put(registry, JobRecord(job_id="j", name="kept", extra=half))
    more = JobRecord(job_id="j", name="refused", extra={"foas": half["pai_dlc"]})
    with pytest.raises(LimitExceededError, match="extra") as refused:
        put(registry, JobRecord(job_id="i"), more)
    assert refused.value.field == "extra"
    assert (view(registry).job.name, registry.find_job(None, "i", NOW)) == ("kept", [])
    put(registry, JobRecord(job_id="j", checkpoints=[CheckpointRecord(id=str(n)) for n in range(10_000)]))
    with pytest.raises(LimitExceededError, match="10000 checkpoints"):
        put(registry, JobRecord(job_id="j", checkpoints=[CheckpointRecord(id="one more")]))
    put(registry, JobRecord(job_id="j", checkpoints=[CheckpointRecord(id="9", type="full")]))
    assert view(registry).job.checkpoints[9].type == "full"


def test_a_job_knows_when_its_record_was_last_written(registry: Registry) -> None:
    put(registry, JobRecord(job_id="j", name="a"), now=NOW)
    put(registry, JobRecord(job_id="j", name="a"), now=NOW + 5)
    records = observation(NOW, NOW + 9, node="")
    registry.observe([records, replace(records, job="i")], NOW + 9)
    assert [view(registry, job).job.updated for job in ("j", "i")] == [NOW + 5, None]


def test_a_node_may_belong_to_a_resource_group(registry: Registry) -> None:
    put_node = NodeRecord(name="n", resource_group="rg")
    registry.record("default", Records(nodes=[put_node]), NOW)
    registry.record("default", Records(nodes=[NodeRecord(name="n", info={"cores": 8}), NodeRecord(name="n")]), NOW)
    assert [(n.resource_group, n.info) for n in registry.list_nodes(None)] == [("rg", {"cores": 8})]


def test_nothing_to_record_is_nothing(registry: Registry) -> None:
    assert registry.record("default", Records(), NOW) == 0
