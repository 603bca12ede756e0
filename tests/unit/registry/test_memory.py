"""Tests of caches of recent reads: they are as correct as a new read."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.support.registries import observation

from jobmeter.errors import UnavailableError
from jobmeter.model.job import JobState, JobView
from jobmeter.model.record import JobRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.model.time import MINUTE, SECOND
from jobmeter.registry import memory
from jobmeter.registry.base import Registry
from jobmeter.registry.memory import Expiring, TtlCache
from jobmeter.registry.open import open_registry
from jobmeter.registry.rows import ALIVE_MS

NOW = 1_900_000_000_000
OBSERVED = observation(NOW, NOW, job="job", replica="worker-0", node="node-1", device="gpu0")


def states(view: JobView) -> tuple[JobState, JobState | None]:
    return view.job.state, view.replicas[0].state


def one(registry: Registry, now_ms: int) -> JobView:
    [view] = registry.find_job(None, "job", now_ms)
    [head] = registry.find_job_head(None, "job", now_ms)
    assert view.job == head
    return view


def test_a_job_of_samples_ends_when_they_end_however_lately_it_was_read(registry: Registry) -> None:
    registry.observe([OBSERVED, replace(OBSERVED, replica="worker-1", device="gpu1", last_ms=NOW + 2 * SECOND)], NOW)
    running, over = JobState.RUNNING, JobState.UNKNOWN
    last = NOW + ALIVE_MS
    assert states(one(registry, NOW)) == (running, running)
    assert states(one(registry, last - 1)) == (running, running)
    assert states(one(registry, last)) == (running, over)
    assert states(one(registry, last + 2 * SECOND)) == (over, over)
    assert states(one(registry, last - 1)) == (running, running), "a clock that was set back"
    registry.observe([replace(OBSERVED, last_ms=last)], last)
    assert states(one(registry, last)) == (running, running)


def test_what_is_written_is_read_at_once(registry: Registry) -> None:
    registry.observe([OBSERVED], NOW)
    assert one(registry, NOW).job.state is JobState.RUNNING
    ended = JobRecord(job_id="job", state=JobState.FAILED, replicas=[ReplicaRecord(name="worker-0", rank=3)])
    registry.record("default", Records(jobs=[ended]), NOW)
    view = one(registry, NOW + 10 * MINUTE)
    assert (view.job.state, view.replicas[0].rank) == (JobState.FAILED, 3)
    registry.delete_job("default", "job")
    assert not registry.find_job(None, "job", NOW)
    assert not registry.find_job_head(None, "job", NOW)


def test_a_job_of_this_process_alone_stays_in_memory(tmp_path: Path) -> None:
    registry = open_registry(f"sqlite:///{tmp_path}/registry.db", Retention())
    registry.observe([OBSERVED], NOW)
    assert registry.memory.get_job(None, "job", NOW) is None
    view = one(registry, NOW)
    assert registry.memory.get_job(None, "job", NOW + ALIVE_MS - 1) == [view]
    assert registry.memory.get_job_head(None, "job", NOW + ALIVE_MS - 1) == [view.job]
    assert registry.memory.get_job(None, "job", NOW + ALIVE_MS) is None
    registry.close()


def test_a_job_that_another_process_added_is_found_before_the_cache_expires(postgresql_url: str, monkeypatch) -> None:
    monkeypatch.setattr(memory, "JOB_SECONDS", 3_600.0)
    ours, theirs = (open_registry(postgresql_url, Retention()) for _ in range(2))
    ours.refresh.join(None, alone=True)
    assert not ours.find_job(None, "job", NOW)
    assert not ours.find_job_head(None, "job", NOW)
    theirs.observe([OBSERVED], NOW)
    assert one(ours, NOW).job.id == "job"
    ours.close()
    theirs.close()


def test_among_other_servers_each_change_is_read_at_once(postgresql_url: str, monkeypatch) -> None:
    monkeypatch.setattr(memory, "JOB_SECONDS", 3_600.0)
    ours, theirs = (open_registry(postgresql_url, Retention()) for _ in range(2))
    theirs.observe([OBSERVED], NOW)
    theirs.record("default", Records(jobs=[JobRecord(job_id="other", name="quiet")]), NOW)
    assert one(ours, NOW).job.name == ""
    assert ours.get_retention("default") == Retention()
    for name in ("resnet", "bert"):
        theirs.record("default", Records(jobs=[JobRecord(job_id="job", name=name)]), NOW)
        assert one(ours, NOW).job.name == name
        assert ours.memory.get_job(None, "job", NOW) is None
    [quiet] = ours.find_job_head(None, "other", NOW)
    entry = ours.memory.heads.get_entry("other", None)
    theirs.observe([replace(OBSERVED, last_ms=NOW + SECOND)], NOW + SECOND)
    assert one(ours, NOW + SECOND).job.last_sample == NOW + SECOND
    assert ours.find_job_head(None, "other", NOW) == [quiet]
    assert ours.memory.heads.get_entry("other", None) == entry, "an unchanged job stays cached"
    theirs.delete_job("default", "job")
    assert not ours.find_job(None, "job", NOW)
    assert ours.memory.retentions.get_last("default", None) == Retention()
    ours.refresh.join(None, alone=True)
    assert ours.memory.get_job_head(None, "other", NOW) is None, "a change before it joined may have been missed"
    assert ours.find_job_head(None, "other", NOW) == [quiet]
    assert ours.memory.get_job_head(None, "other", NOW) == [quiet]
    ours.close()
    theirs.close()


def test_what_another_process_writes_is_read_once_the_cache_expires(url: str, monkeypatch) -> None:
    monkeypatch.setattr(memory, "JOB_SECONDS", 0.0)
    ours, theirs = (open_registry(url, Retention()) for _ in range(2))
    theirs.observe([OBSERVED], NOW)
    assert one(ours, NOW).job.name == ""
    theirs.record("default", Records(jobs=[JobRecord(job_id="job", name="resnet")]), NOW)
    assert one(ours, NOW).job.name == "resnet"
    for registry in (ours, theirs):
        registry.close()


def test_the_jobs_that_were_read_longest_ago_go_where_there_are_too_many() -> None:
    cache = TtlCache[str](60.0, most=10)
    for name in "abc":
        cache.put(name, None, Expiring(name, parts=4), cache.get(name, None, 0)[1])
        cache.get("a", None, 0)
    assert [cache.get(name, None, 0)[0] for name in "abc"] == ["a", None, "c"]


def test_what_was_read_before_a_change_is_not_cached() -> None:
    cache = TtlCache[str](60.0)
    _, generation = cache.get("a", None, 0)
    cache.invalidate(["b"])
    cache.put("a", None, Expiring("before"), generation)
    assert cache.get("a", None, 0)[0] is None


def test_a_retention_that_expired_is_used_while_the_database_does_not_answer(registry: Registry, monkeypatch) -> None:
    own = Retention(raw_days=3)
    registry.set_retention("p", own)
    assert registry.memory.get_retention("p") is None
    assert registry.get_retention("p") == registry.memory.get_retention("p") == own
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: float("inf")))
    assert registry.memory.get_retention("p") is None
    monkeypatch.setattr(registry, "database", _Away())
    assert registry.get_retention("p") == own
    with pytest.raises(UnavailableError):
        registry.get_retention("q")


class _Away:
    """Database that does not answer."""

    def read(self, *_: object) -> None:
        raise UnavailableError("the registry is away")


def test_a_retention_is_read_again_shortly_before_it_expires(registry: Registry, monkeypatch) -> None:
    assert not registry.memory.is_retention_expiring("p")
    registry.get_retention("p")
    assert not registry.memory.is_retention_expiring("p")
    later = time.monotonic() + 0.9 * memory.SHARED_SECONDS
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: later))
    assert registry.memory.is_retention_expiring("p")
    registry.get_retention("p")
    assert not registry.memory.is_retention_expiring("p")
