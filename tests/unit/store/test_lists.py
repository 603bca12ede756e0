"""Lists of series that stay known: as true as asking the engine each time."""

import random
from typing import Any

import pytest

from jobmeter.model.series import Series, job_key
from jobmeter.store.base import Selector
from jobmeter.store.memory import MemoryStore
from jobmeter.store.window import lists
from jobmeter.store.window.lists import Lists
from jobmeter.store.window.store import WindowedStore
from jobmeter.testing.samples import FOREVER, batch_of

KEYS = [job_key("default", f"job-{number}") for number in range(3)]


class Clock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 1_000_000

    def monotonic(self) -> float:
        return 1_000.0


class Engine(MemoryStore):
    """Counts how often it looks for series."""

    finds = 0

    def find(self, selector):
        self.finds += 1
        return super().find(selector)


def series(job: int, replica: int) -> Series:
    return Series("gpu.power", job=f"job-{job}", replica=f"worker-{replica}")


def test_a_new_series_of_one_job_leaves_what_is_known_of_others():
    engine = Engine()
    store = WindowedStore(engine, Clock(), length_ms=10**7, bound=2**30)
    for job in range(3):
        store.append(batch_of({(series(job, 0), 1_000_000): 1.0}), FOREVER)
        store.find(Selector(jobs=(KEYS[job],)))
    store.find(Selector(jobs=(KEYS[0], KEYS[2])))
    engine.finds = 0
    store.append(batch_of({(series(0, 1), 1_000_000): 1.0}), FOREVER)
    assert [one.replica for one in store.find(Selector(jobs=(KEYS[1],)))] == ["worker-0"]
    assert engine.finds == 0
    assert sorted(one.replica for one in store.find(Selector(jobs=(KEYS[0],)))) == ["worker-0", "worker-1"]
    assert len(store.find(Selector(jobs=(KEYS[0], KEYS[2])))) == 3
    assert engine.finds == 2


def test_a_job_that_is_deleted_has_no_series_any_more():
    store = WindowedStore(Engine(), Clock(), length_ms=10**7, bound=2**30)
    store.append(batch_of({(series(0, 0), 1_000_000): 1.0, (series(1, 0), 1_000_000): 1.0}), FOREVER)
    assert len(store.find(Selector(jobs=(KEYS[0], KEYS[1])))) == 2
    store.delete_job(KEYS[0])
    assert [one.job for one in store.find(Selector(jobs=(KEYS[0], KEYS[1])))] == ["job-1"]


@pytest.mark.parametrize("most", [2, 100])
@pytest.mark.parametrize("changed", [2, 100])
@pytest.mark.parametrize("seed", range(20))
def test_no_list_outlives_a_change_of_its_jobs(monkeypatch, most: int, changed: int, seed: int):
    monkeypatch.setattr(lists, "_MOST_CHANGED", changed)
    draw = random.Random(seed)
    known = Lists(most)
    now = dict.fromkeys(range(6), 0)
    reading: list[tuple[tuple[int, ...], list[Any], int]] = []
    hits = 0
    for _ in range(400):
        match draw.randrange(4):
            case 0:  # somebody begins to read
                jobs = tuple(sorted(draw.sample(range(6), draw.randrange(1, 3))))
                reading.append((jobs, [now[job] for job in jobs], known.moment))
            case 1 if reading:  # and has read
                jobs, found, moment = reading.pop(draw.randrange(len(reading)))
                known.put(jobs, jobs, found, moment)
            case 2 if draw.random() < 0.4:
                jobs = tuple(draw.sample(range(6), 2))
                now.update({job: now[job] + 1 for job in jobs})
                known.forget(jobs)
            case 2 if draw.random() < 0.05:
                now = {job: one + 1 for job, one in now.items()}
                known.clear()
            case _:
                jobs = tuple(sorted(draw.sample(range(6), draw.randrange(1, 3))))
                told = known.get(jobs)
                hits += told is not None
                assert told is None or list[Any](told) == [now[job] for job in jobs]
    assert hits
    assert len(known._lists) <= most
    assert {name for names in known._names.values() for name in names} == known._lists.keys()
