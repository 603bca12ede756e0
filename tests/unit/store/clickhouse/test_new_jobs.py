"""Tests that all series of new jobs are found without the engine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store_contract.samples import FOREVER, batch_of
from tests.store_contract.slot import Slot

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series import Series
from jobmeter.store.base import SeriesSelector
from jobmeter.store.clickhouse import new_jobs
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.new_jobs import NewJobs

SERIES = [
    Series(metric, job=job, replica=f"w{n}") for job in "abcd" for metric in ("gpu.power", "cpu.time") for n in (0, 1)
]
JOBS = sorted({one.job_key for one in SERIES})
LISTS = st.lists(st.sampled_from(SERIES), min_size=1, unique=True)
SOME_JOBS = st.lists(st.sampled_from(JOBS), unique=True)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("add"), LISTS), st.tuples(st.just("close"), SOME_JOBS), st.just(("close all", []))),
    max_size=12,
)


def described(series):
    return Descriptors.from_series(series, SeriesKeys.from_series(series), np.zeros(len(series), np.int64), 1)


def keys_of(jobs):
    return np.array(jobs, np.uint64)


@given(SOME_JOBS, STEPS, SOME_JOBS)
@settings(max_examples=200, deadline=None)
def test_a_list_is_complete_or_none(stored, steps, asked):
    jobs, closed = NewJobs(keys_of(stored)), set(stored)
    known: dict[int, set[Series]] = {}
    for step, given_ in steps:
        if step == "add":
            jobs.add(described(given_))
            for one in given_:
                known.setdefault(one.job_key, set()).add(one)
        elif step == "close":
            jobs.close(keys_of(given_))
            closed.update(given_)
        else:
            jobs.close_all()
            closed.update(known)
        for some in (asked, [asked[0]] if asked else []):
            found = jobs.find(SeriesSelector(jobs=tuple(some)))
            if all(job in known and job not in closed for job in some):
                assert found is not None
                assert set(found) == {one for job in some for one in known[job]}
            else:
                assert found is None


def test_beyond_the_limit_the_list_of_the_engine_is_used(monkeypatch):
    monkeypatch.setattr(new_jobs, "_MOST_SERIES", 3)
    jobs = NewJobs(keys_of([]))
    jobs.add(described(SERIES[:3]))
    found = jobs.find(SeriesSelector(jobs=(SERIES[0].job_key,)))
    assert found is not None
    assert len(list(found)) == 3
    jobs.add(described(SERIES[4:5]))
    assert jobs.find(SeriesSelector(jobs=(SERIES[0].job_key,))) is None


@pytest.fixture
def engine_only_for(chdb_store, monkeypatch):
    """Return a function that makes searches for series in the engine fail."""

    def refuse(selector):
        raise AssertionError(f"the engine is asked for {selector}")

    return lambda: monkeypatch.setattr("jobmeter.store.clickhouse.catalog._questions", refuse)


def test_the_series_of_a_new_job_are_found_while_the_engine_is_busy(chdb_store, engine_only_for):
    slot, old = Slot(), Slot()
    chdb_store.append_all((batch_of({(old.gauge(), old.start): 1.0}),), FOREVER)
    chdb_store.roll_up(old.start)
    first, second, other = slot.gauge("worker-0"), slot.gauge("worker-1"), slot.counter()
    chdb_store.append_all((batch_of({(first, slot.start): 1.0}),), FOREVER)
    chdb_store.commit_log.flush()
    chdb_store.append_all((batch_of({(second, slot.start): 1.0, (other, slot.start): 1.0}),), FOREVER)
    engine_only_for()
    assert set(chdb_store.find(SeriesSelector(jobs=(slot.key,)))) == {first, second, other}
    assert chdb_store.find(SeriesSelector(jobs=(slot.key,), metrics=frozenset({"cpu.time"}))) == [other]
    with pytest.raises(AssertionError, match="the engine is asked"):
        chdb_store.find(SeriesSelector(jobs=(old.key,)))
    chdb_store.delete_job(slot.key)
    with pytest.raises(AssertionError, match="the engine is asked"):
        chdb_store.find(SeriesSelector(jobs=(slot.key,)))


def test_a_commit_across_a_change_of_the_list_does_not_begin_one(chdb_store, monkeypatch):
    slot = Slot()
    first, second = slot.gauge("worker-0"), slot.gauge("worker-1")
    append = chdb_store.commit_log.append

    def append_later(group):
        monkeypatch.undo()
        chdb_store.catalog.forget()  # like a deletion by the leader
        chdb_store.lacks_descriptor(SeriesKeys.from_series([second]))  # reads the list of all series again
        append(group)

    monkeypatch.setattr(chdb_store.commit_log, "append", append_later)
    chdb_store.append_all((batch_of({(first, slot.start): 1.0}),), FOREVER)
    chdb_store.append_all((batch_of({(second, slot.start): 1.0}),), FOREVER)
    chdb_store.commit_log.flush()
    assert set(chdb_store.find(SeriesSelector(jobs=(slot.key,)))) == {first, second}
