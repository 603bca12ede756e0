"""Tests of cached lists of series: they equal a fresh answer of the engine each time."""

import random

import pytest
from tests.store_contract.samples import FOREVER, batch_of
from tests.support.memory_store import MemoryStore

from jobmeter.errors import LimitExceededError
from jobmeter.model.series import NO_JOB, Series, compute_job_key
from jobmeter.store.base import SeriesSelector
from jobmeter.store.cache import Cache
from jobmeter.store.window import revisions
from jobmeter.store.window.store import WindowedStore

KEYS = [compute_job_key("default", f"job-{number}") for number in range(3)]


class Clock:
    """Clock that stands still."""

    def now_ms(self) -> int:
        return 1_000_000

    def monotonic(self) -> float:
        return 1_000.0


class Engine(MemoryStore):
    """Engine that counts its searches for series."""

    finds = 0

    def find(self, selector):
        self.finds += 1
        return super().find(selector)


def series(job: int, replica: int) -> Series:
    return Series("gpu.power", job=f"job-{job}", replica=f"worker-{replica}")


def test_a_new_series_of_one_job_leaves_the_lists_of_others():
    engine = Engine()
    store = WindowedStore(engine, Clock(), length_ms=10**7, bound=2**30)
    for job in range(3):
        store.append_all((batch_of({(series(job, 0), 1_000_000): 1.0}),), FOREVER)
        store.find(SeriesSelector(jobs=(KEYS[job],)))
    store.find(SeriesSelector(jobs=(KEYS[0], KEYS[2])))
    engine.finds = 0
    store.append_all((batch_of({(series(0, 1), 1_000_000): 1.0}),), FOREVER)
    assert [one.replica for one in store.find(SeriesSelector(jobs=(KEYS[1],)))] == ["worker-0"]
    assert engine.finds == 0
    assert sorted(one.replica for one in store.find(SeriesSelector(jobs=(KEYS[0],)))) == ["worker-0", "worker-1"]
    assert len(store.find(SeriesSelector(jobs=(KEYS[0], KEYS[2])))) == 3
    assert engine.finds == 2


def test_a_search_over_all_jobs_reads_the_engine_again_only_after_a_change():
    engine = Engine()
    store = WindowedStore(engine, Clock(), length_ms=10**7, bound=2**30)
    powers, clocks = (SeriesSelector(metrics=frozenset({name})) for name in ("gpu.power", "gpu.clock"))
    assert store.find(powers) == store.find(clocks) == []
    engine.finds = 0
    assert store.find(powers) == store.find(clocks) == []
    assert engine.finds == 0
    store.append_all((batch_of({(series(0, 0), 1_000_000): 1.0}),), FOREVER)
    assert [one.job for one in store.find(powers)] == ["job-0"]
    store.append_all((batch_of({(series(1, 0), 1_000_000): 1.0}),), FOREVER)
    assert sorted(one.job for one in store.find(powers)) == ["job-0", "job-1"]
    store.delete_job(KEYS[0])
    assert [one.job for one in store.find(powers)] == ["job-1"]
    finds = engine.finds
    store.append_all((batch_of({(series(1, 0), 1_000_100): 2.0}),), FOREVER)
    assert len(store.find(powers)) == 1
    assert engine.finds == finds


def of_node(node: int, disk: int) -> Series:
    return Series("disk.read", cluster=f"c{node % 2}", node=f"n{node // 2}", labels=(("disk", f"d{disk}"),))


def test_questions_about_several_nodes_find_the_series_of_each_node_once():
    engine = Engine()
    store = WindowedStore(engine, Clock(), length_ms=10**7, bound=2**30)
    every = [of_node(node, disk) for node in range(6) for disk in range(3)]
    store.append_all((batch_of({(one, 1_000_000): 1.0 for one in every}),), FOREVER)

    def found(*nodes: int, limit: int = 100) -> set[Series]:
        places = tuple((f"c{node % 2}", f"n{node // 2}") for node in nodes)
        return set(store.find(SeriesSelector(jobs=(NO_JOB,), nodes=places, limit=limit)))

    def of_nodes(*nodes: int) -> set[Series]:
        return {one for node in nodes for one in every if (one.cluster, one.node) == (f"c{node % 2}", f"n{node // 2}")}

    assert found(0, 1, 2, 9) == of_nodes(0, 1, 2)
    assert found(3, 2) == of_nodes(2, 3)
    finds = engine.finds
    for nodes in [(2,), (9,), (3, 0), (1, 2, 3), ()]:
        assert found(*nodes) == of_nodes(*nodes)
    assert engine.finds == finds
    assert found(0, 1, limit=6) == of_nodes(0, 1)
    found(2, limit=5)
    found(3, limit=5)
    with pytest.raises(LimitExceededError):
        found(2, 3, limit=5)
    every.append(of_node(2, 7))
    store.append_all((batch_of({(every[-1], 1_000_000): 1.0}),), FOREVER)
    assert found(2, 3) == of_nodes(2, 3)


def test_a_job_that_is_deleted_has_no_series_any_more():
    store = WindowedStore(Engine(), Clock(), length_ms=10**7, bound=2**30)
    store.append_all((batch_of({(series(0, 0), 1_000_000): 1.0, (series(1, 0), 1_000_000): 1.0}),), FOREVER)
    assert len(store.find(SeriesSelector(jobs=(KEYS[0], KEYS[1])))) == 2
    store.delete_job(KEYS[0])
    assert [one.job for one in store.find(SeriesSelector(jobs=(KEYS[0], KEYS[1])))] == ["job-1"]


@pytest.mark.parametrize("bound", [2_000, 2**20])
@pytest.mark.parametrize("slots", [1, 2, 100])
@pytest.mark.parametrize("seed", range(10))
def test_no_list_outlives_a_change_of_its_jobs(monkeypatch, bound: int, slots: int, seed: int):
    monkeypatch.setattr(revisions, "SLOTS", slots)
    draw = random.Random(seed)
    engine = Engine()
    store = WindowedStore(engine, Clock(), length_ms=10**7, bound=2**30, cache=Cache(bound))
    asked = 0
    for _ in range(300):
        jobs = draw.sample(range(3), draw.randrange(1, 3))
        match draw.randrange(8):
            case 0:
                rows = {(series(job, draw.randrange(4)), 1_000_000 + draw.randrange(100)): 1.0 for job in jobs}
                store.append_all((batch_of(rows),), FOREVER)
            case 1 if draw.random() < 0.3:
                store.delete_job(KEYS[jobs[0]])
            case _:
                asked += 1
                of_jobs = None if draw.random() < 0.2 else tuple(sorted(KEYS[job] for job in jobs))
                selector = SeriesSelector(jobs=of_jobs)
                expected = {(one.job, one.replica) for one in MemoryStore.find(engine, selector)}
                assert {(one.job, one.replica) for one in store.find(selector)} == expected
    assert engine.finds < asked or (bound < 3_000 and slots < 3)


def test_a_list_that_was_read_while_its_job_changed_is_not_cached():
    class Interrupted(Engine):
        store: WindowedStore

        def find(self, selector):
            found = super().find(selector)
            if self.finds == 1:
                self.store.append_all((batch_of({(series(0, 1), 1_000_000): 1.0}),), FOREVER)
            return found

    engine = Interrupted()
    engine.store = store = WindowedStore(engine, Clock(), length_ms=10**7, bound=2**30)
    store.append_all((batch_of({(series(0, 0), 1_000_000): 1.0}),), FOREVER)
    engine.finds = 0
    selector = SeriesSelector(jobs=(KEYS[0],))
    assert [one.replica for one in store.find(selector)] == ["worker-0"]
    assert len(store.find(selector)) == 2
