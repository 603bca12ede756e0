"""Tests of the list of projects, on both databases."""

from tests.support.registries import observation

from jobmeter.model.job import JobSize
from jobmeter.model.record import JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.registry.base import Registry

NOW = 1_790_000_000_000


def _record(registry: Registry, project: str, job: str, **fields: object) -> None:
    registry.record(project, Records(jobs=[JobRecord(job_id=job, **fields)]), NOW)  # type: ignore[arg-type]


def test_a_project_has_its_newest_job_and_the_time_of_its_first(registry):
    _record(registry, "p-2", "late", created=NOW - 1000)
    _record(registry, "p-2", "early", created=NOW - 5000)
    _record(registry, "p-2", "only-started", start=NOW - 3000)
    _record(registry, "p-1", "one", created=NOW - 2000, name="One")
    found = registry.list_projects(None, NOW)
    assert [(project.name, project.created, project.latest.id) for project in found] == [
        ("p-1", NOW - 2000, "one"),
        ("p-2", NOW - 5000, "late"),
    ]
    assert found[0].latest == registry.find_job_head(frozenset({"p-1"}), "one", NOW)[0]


def test_only_the_named_ones(registry):
    _record(registry, "p-1", "one")
    _record(registry, "p-2", "two")
    assert [project.name for project in registry.list_projects(frozenset({"p-2", "p-3"}), NOW)] == ["p-2"]
    assert registry.list_projects(frozenset(), NOW) == []


def test_samples_alone_make_a_project(registry):
    observed = observation(NOW - 9000, NOW - 4000, project="p-1", replica="", node="")
    registry.observe([observed], NOW)
    (found,) = registry.list_projects(None, NOW)
    assert (found.name, found.created, found.latest.id) == ("p-1", NOW - 9000, "j")


def test_a_project_without_jobs_has_no_newest_one(registry):
    registry.record("p-1", Records(nodes=[NodeRecord(name="n1")]), NOW)
    _record(registry, "p-2", "two", created=NOW)
    registry.delete_job("p-2", "two")
    assert [(project.name, project.created, project.latest) for project in registry.list_projects(None, NOW)] == [
        ("p-1", None, None),
        ("p-2", None, None),
    ]


def test_the_size_of_many_jobs_is_counted_at_once(registry):
    def member(name, node, *devices, attempt=0):
        return ReplicaRecord(name=name, node=node, devices=list(devices), attempt=attempt, start=NOW)

    moved = [member("w-0", "a", "gpu0", "gpu1"), member("w-0", "b", "gpu0", "gpu1", "gpu2", attempt=1)]
    _record(registry, "p-1", "big", start=NOW, replicas=[*moved, member("w-1", "a", "gpu2", "npu0", "npu1")])
    _record(registry, "p-2", "big", start=NOW, replicas=["w-0", "w-1", "w-2"])
    _record(registry, "p-1", "empty", start=NOW)
    asked = [("p-1", "big"), ("p-2", "big"), ("p-1", "empty"), ("p-3", "big"), ("p-1", "gone")]
    found = registry.read_sizes(asked)
    assert found["p-1", "big"] == JobSize(replicas=2, gpus=3)
    assert found["p-2", "big"] == JobSize(replicas=3, gpus=0)
    assert [found.get(job, JobSize()) for job in asked[2:]] == [JobSize()] * 3
    placed = registry.read_sizes(asked, places=True)
    assert placed["p-1", "big"] == JobSize(replicas=2, gpus=3, devices=8, nodes=2)
    assert placed["p-2", "big"] == JobSize(replicas=3)
    many = [("p-1", f"j{number}") for number in range(3000)]
    assert set(registry.read_sizes([*many, asked[0]]).values()) == {JobSize(), JobSize(replicas=2, gpus=3)}
    assert registry.read_sizes([]) == {}
