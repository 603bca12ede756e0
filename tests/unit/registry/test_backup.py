"""Tests of backups: made during writes, and restored into either database."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobmeter.errors import ConflictError, InvalidRequestError, UnavailableError
from jobmeter.model.event import EventFilter
from jobmeter.model.job import JobFilter, JobState
from jobmeter.model.record import (
    AllocationRecord,
    CheckpointRecord,
    EventRecord,
    JobRecord,
    NodeRecord,
    Records,
    ReplicaRecord,
)
from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.migrate import HEAD, REVISIONS
from jobmeter.registry.open import open_registry
from jobmeter.registry.stored import Observation, StoredKey

NOW = 1_790_000_000_000
KEY = StoredKey(
    id="key-1", name="ci", role="admin", project=None, token_hash=bytes(range(32)), access_key_id="AK",
    sealed_secret=b"\x00\x01\xff", created=5, revoked=6, last_used=7,
)  # fmt: skip


def fill(registry: Registry) -> None:
    allocation = AllocationRecord(replica="w", node="n", device="gpu0", start=NOW - 9, source="scheduler", rank=3)
    worker = ReplicaRecord(name="w", rank=1, node="n", state=JobState.RUNNING, devices=["gpu1"])
    jobs = [
        JobRecord(job_id="a\u2028b", name='größe\n"x"', labels={"k": "v"}, error="a\tb", instance_type={"cpu": 2}),
        JobRecord(
            job_id="j",
            state=JobState.RUNNING,
            start=NOW,
            replicas=[worker, "v"],
            allocations=[allocation],
            checkpoints=[CheckpointRecord(id="c", files=["s3://b/k"])],
            extra={"pai_dlc": {"Priority": 1}},
        ),
    ]
    node = NodeRecord(name="n", resource_group="rg", info={"cores": 8})
    event_record = EventRecord(time=NOW, job="j", reason="r", message="größe\n")
    registry.record("p", Records(jobs=[jobs[1]], nodes=[node], events=[event_record]), NOW)
    names = {"project": "default", "replica": "w", "attempt": 1, "cluster": "c", "node": "n", "device": "gpu0"}
    registry.observe([Observation(job=f"o{n}", first_ms=n, last_ms=n + 5, **names) for n in range(2500)], NOW)  # type: ignore[arg-type]
    registry.record("default", Records(jobs=[JobRecord(job_id="o7", name=jobs[0].name, error=jobs[0].error)]), NOW)
    registry.set_retention("p", Retention(raw_days=3))
    registry.keys.add(KEY)


def everything(registry: Registry) -> object:
    page = registry.list_jobs(JobFilter(sort="id", limit=10_000), NOW)
    views = [registry.find_job(frozenset({job.project}), job.id, NOW) for job in page.jobs[::50] + page.jobs[:3]]
    own = registry.get_retention("p"), registry.get_retention("default")
    events = registry.list_events(EventFilter(limit=10_000))
    return (
        page.jobs,
        views,
        registry.find_job(None, "j", NOW),
        registry.list_nodes(None),
        registry.keys.list_keys(),
        own,
        events,
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    url = f"sqlite:///{tmp_path / 'other' / 'registry.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("other_postgresql_url")
    registry = open_registry(url, Retention())
    yield registry
    registry.close()


def test_a_copy_brings_everything_back_in_either_database(registry: Registry, empty: Registry, tmp_path: Path) -> None:
    fill(registry)
    registry.backup(tmp_path / "copy")
    empty.restore(tmp_path / "copy")
    assert everything(empty) == everything(registry)
    # The next write must not reuse a number.
    for target in (empty, registry):
        allocation = AllocationRecord(replica="z", node="n", device="gpu9", start=NOW)
        event_record = EventRecord(time=NOW, job="j", reason="later")
        target.record("p", Records(jobs=[JobRecord(job_id="j", allocations=[allocation])], events=[event_record]), NOW)
    assert everything(empty) == everything(registry)


def test_a_copy_of_an_empty_registry_is_a_copy(registry: Registry, empty: Registry, tmp_path: Path) -> None:
    registry.backup(tmp_path / "copy")
    empty.restore(tmp_path / "copy")
    assert empty.list_jobs(JobFilter(), NOW).total == 0


def test_a_copy_holds_one_moment_while_others_write(registry: Registry, empty: Registry, tmp_path: Path) -> None:
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            jobs = [JobRecord(job_id=f"{side}{written}", replicas=["w"]) for side in "ab"]
            registry.record("default", Records(jobs=jobs), NOW)
            written += 1

    thread = threading.Thread(target=write)
    thread.start()
    for number in range(3):
        registry.backup(tmp_path / f"copy{number}")
    stop.set()
    thread.join()
    empty.restore(tmp_path / "copy2")
    ids = {job.id for job in empty.list_jobs(JobFilter(limit=100_000), NOW).jobs}
    count = len(ids) // 2
    assert ids == {f"{side}{number}" for side in "ab" for number in range(count)}
    assert count <= written


def test_a_copy_is_not_written_over_another(registry: Registry, tmp_path: Path) -> None:
    registry.backup(tmp_path / "copy")
    with pytest.raises(ConflictError):
        registry.backup(tmp_path / "copy")


def test_only_an_empty_registry_is_filled(registry: Registry, tmp_path: Path) -> None:
    fill(registry)
    registry.backup(tmp_path / "copy")
    before = everything(registry)
    with pytest.raises(ConflictError):
        registry.restore(tmp_path / "copy")
    assert everything(registry) == before


def test_a_damaged_copy_fills_nothing(
    registry: Registry, tmp_path: Path, request: pytest.FixtureRequest, postgresql_url: str
) -> None:
    source = open_registry(postgresql_url, Retention())
    fill(source)
    source.backup(tmp_path / "copy")
    source.close()
    if "postgresql" in request.node.name:
        return  # source and target are the same database, which is not empty
    rows = tmp_path / "copy" / "registry.jsonl"
    whole = rows.read_bytes()
    for damaged in (
        whole[:-9],
        whole.replace(b'"row":{', b'"row":[', 1),
        b"",
        whole.replace(HEAD.encode(), b"9999", 1),
    ):
        rows.write_bytes(damaged)
        with pytest.raises(InvalidRequestError) as refused:
            registry.restore(tmp_path / "copy")
        assert refused.value.field == "directory"
        assert registry.list_jobs(JobFilter(), NOW).total == 0
    rows.write_bytes(whole)
    registry.restore(tmp_path / "copy")
    assert registry.list_jobs(JobFilter(), NOW).total == 2501


def test_a_folder_without_a_copy_is_named(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        registry.restore(tmp_path / "none")
    assert refused.value.field == "directory"


def test_a_folder_that_cannot_be_made_is_unavailable(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError):
        registry.backup(tmp_path / "file" / "copy")


def test_a_copy_made_before_the_last_migration_is_brought_back(registry: Registry, tmp_path: Path) -> None:
    lines = [
        {"format": "jobmeter-registry", "version": 1, "migration": min(REVISIONS)},
        {"table": "projects", "row": {"name": "p", "raw_days": None, "minute_days": None, "hour_days": None}},
        {
            "table": "jobs",
            "row": {"project": "p", "id": "old", "name": "n", "recorded": True, "noticed": 5, "search": "n\nold"},
        },
        {"table": "nodes", "row": {"project": "p", "cluster": "", "name": "n", "info": None}},
        {"rows": 3},
    ]
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "registry.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    registry.restore(tmp_path / "copy")
    [job] = registry.find_job_head(None, "old", NOW)
    assert (job.name, job.extra, job.checkpoints, job.updated) == ("n", {}, [], None)
    assert [(node.name, node.resource_group) for node in registry.list_nodes(None)] == [("n", "")]
