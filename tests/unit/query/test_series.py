"""Tests of questions about stored series, within the caller's scope."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replace_parts
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.policy import Grant
from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import NamePart, Series
from jobmeter.model.time import DAY, HOUR, MINUTE, TimeRange
from jobmeter.query import series as series_module
from jobmeter.query.execute import Executor
from jobmeter.query.series import (
    BucketsQuestion,
    LastQuestion,
    NamesQuestion,
    SamplesQuestion,
    SeriesQuestion,
    find_keys,
)
from jobmeter.settings import Limits
from jobmeter.store.cache import Cache
from jobmeter.store.window.store import WindowedStore

ALL = Scope(None)
LAB, OTHER = Scope(frozenset({"lab"})), Scope(frozenset({"other"}))
MINE = Series("cpu.time", "lab", job="j1", replica="w-0")
SECOND = Series("cpu.time", "lab", job="j2", labels=(("a", "b"),))
NODE = Series("node.load1", "lab", node="n1")
FOREIGN = Series("cpu.time", "other", job="j1", replica="w-9")
ZERO = np.zeros(1, np.uint32)
SPAN = TimeRange(NOW - 10 * MINUTE, NOW)


@pytest.fixture
def store():
    made = MemoryStore()
    series = [MINE, SECOND, NODE, FOREIGN]
    times = np.arange(NOW - 10 * MINUTE, NOW, MINUTE)
    made.append_all(
        (
            SampleBatch(
                series,
                np.repeat(np.arange(4, dtype=np.uint32), len(times)),
                np.tile(times, 4),
                np.tile(np.array([0, 10, 20, 30, 5, 15, 25, 35, 45, 55.0]), 4),
            ),
        )
    )
    return made


def run(store, question, scope=ALL, **limits):
    return Executor(store, FakeRegistry(), SetClock(), Limits(**limits)).run(question, scope)


def test_lists_of_a_job_are_cached_until_its_revision_changes(store):
    revision, searches = [1], []

    class Counting(MemoryStore):
        def get_revision(self, jobs):
            return revision[0]

        def find(self, selector):
            searches.append(selector)
            return super().find(selector)

    store.__class__ = Counting
    executor = Executor(store, FakeRegistry(), SetClock(), Limits())

    def listed(jobs, scope=ALL, since=NOW - MINUTE):
        return set(executor.run(SeriesQuestion(jobs=jobs, since_ms=since), scope).series)

    assert listed((MINE.job_key,)) == listed((MINE.job_key,), since=NOW - MINUTE + 1) == {MINE}
    assert len(searches) == 1
    assert listed((FOREIGN.job_key,)) == {FOREIGN}
    assert listed((FOREIGN.job_key,), LAB) == set(), "a caller with another scope has another list"
    revision[0] = 2
    assert listed((MINE.job_key,)) == {MINE}
    assert len(searches) == 4
    assert listed(None) == listed(None) == {MINE, SECOND, NODE, FOREIGN}
    assert len(searches) == 6, "lists of every job are not cached"


def test_a_derived_result_is_cached_as_long_as_its_list_of_series(store):
    revision, made = [1], []

    class Revised(MemoryStore):
        def get_revision(self, jobs):
            return revision[0]

    store.__class__ = Revised
    executor = Executor(store, FakeRegistry(), SetClock(), Limits())

    def derived(name, jobs=(MINE.job_key,), scope=ALL):
        def make(series):
            made.append(name)
            return sorted(f"{name} {one.replica}" for one in series)

        return executor.run(SeriesQuestion(metrics=frozenset({"cpu.time"}), jobs=jobs), scope).derive(name, make)

    assert derived("a") == derived("a") == ["a w-0"]
    assert derived("b") == ["b w-0"]
    assert made == ["a", "b"]
    assert derived("a", (FOREIGN.job_key,)) == ["a w-9"]
    assert derived("a", (FOREIGN.job_key,), LAB) == []
    store.append_all(
        (SampleBatch([Series("cpu.time", "lab", job="j1", replica="w-1")], ZERO, np.array([NOW]), np.ones(1)),)
    )
    revision[0] = 2
    made.clear()
    assert derived("a") == derived("a") == ["a w-0", "a w-1"]
    assert made == ["a"]
    assert derived("a", None) == derived("a", None)
    assert made == ["a"] * 3, "lists of every job are not cached"


def test_equal_series_have_the_identical_keys():
    cache = Cache()
    again = tuple(replace(one) for one in (MINE, SECOND))
    assert find_keys((MINE, SECOND), cache) is find_keys(again, cache)
    assert find_keys((SECOND, MINE), cache).series.tolist() == [SECOND.id, MINE.id]


def test_the_names_of_cached_lists_count_as_memory(store):
    class Counting(MemoryStore):
        def get_revision(self, jobs):
            return 1

    store.__class__ = Counting
    cache = Cache()
    executor = Executor(store, FakeRegistry(), SetClock(), Limits(), cache)
    many = frozenset(f"unknown.{number}" for number in range(1_000))
    found = executor.run(SeriesQuestion(metrics=many, jobs=(MINE.job_key,)), ALL)
    listed = cache.statistics.bytes
    assert listed >= sum(map(len, many))
    found.derive("long", list, 5_000)
    assert cache.statistics.bytes >= listed + 5_000


@pytest.mark.parametrize("length", [MINUTE + 1, 5 * MINUTE, 9 * MINUTE])
def test_samples_come_from_memory_where_it_has_all(store, length):
    clock = SetClock()
    engine = MemoryStore()
    windowed = WindowedStore(engine, clock, length_ms=HOUR, bound=1 << 24)
    times = np.arange(NOW - 10 * MINUTE, NOW, 7_000)
    for series in (SECOND, MINE):
        windowed.append_all((SampleBatch([series], np.zeros(len(times), np.uint32), times, np.sin(times)),))
    question = SamplesQuestion(series=(SECOND, MINE), range=TimeRange(NOW - length, NOW))
    wanted = run(engine, question).columns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed, "read", None)
        columns = run(windowed, question).columns
    assert len(columns) > 10
    for name in ("index", "time", "value"):
        assert np.array_equal(getattr(columns, name), getattr(wanted, name))
    with pytest.raises(LimitExceededError, match="a query may read 8 samples"):
        run(windowed, question, query_points=2)


def test_brief_questions_are_answered_from_memory_alone():
    """Memory answers if the list was found before and all samples are in memory, for the same scope only."""
    engine = MemoryStore()
    windowed = WindowedStore(engine, SetClock(), length_ms=HOUR, bound=1 << 24)
    times = np.arange(NOW - 10 * MINUTE, NOW, 7_000)
    for series in (MINE, FOREIGN):
        windowed.append_all((SampleBatch([series], np.zeros(len(times), np.uint32), times, np.sin(times)),))
    executor = Executor(windowed, FakeRegistry(), SetClock(), Limits())
    listed = SeriesQuestion(metrics=frozenset({"cpu.time"}), jobs=(MINE.job_key, FOREIGN.job_key), brief=True)
    part = Scope(frozenset({"lab"}), grant=Grant((), ()))
    assert executor.answer_from_memory(listed, ALL) is None
    assert set(executor.run(listed, ALL).series) == {MINE, FOREIGN}
    recalled = executor.answer_from_memory(listed, ALL)
    assert recalled is not None
    assert set(recalled.series) == {MINE, FOREIGN}
    assert executor.answer_from_memory(listed, LAB) is None, "a caller with another scope has another list"
    assert executor.answer_from_memory(replace_parts(listed, brief=False), ALL) is None
    assert executor.run(replace_parts(listed, jobs=(MINE.job_key,)), LAB).series == (MINE,)
    assert executor.answer_from_memory(listed, part) is None

    recent = TimeRange(NOW - 5 * MINUTE, NOW)
    asked = SamplesQuestion(series=(FOREIGN, MINE), range=recent, check=True, brief_samples=100)
    wanted = run(engine, asked)
    read = executor.answer_from_memory(asked, ALL)
    assert read is not None
    columns = read.columns
    assert len(columns) > 10
    for name in ("index", "time", "value"):
        assert np.array_equal(getattr(columns, name), getattr(wanted.columns, name))
    with pytest.raises(NotFoundError):
        executor.answer_from_memory(asked, LAB)
    assert executor.answer_from_memory(replace_parts(asked, brief_samples=0), ALL) is None
    assert executor.answer_from_memory(replace_parts(asked, range=TimeRange(NOW - DAY, NOW)), ALL) is None
    assert executor.answer_from_memory(replace_parts(asked, series=(MINE, NODE)), ALL) is None, (
        "memory knows no such series"
    )
    assert executor.answer_from_memory(replace_parts(asked, brief_samples=len(columns)), ALL) is not None
    assert executor.answer_from_memory(replace_parts(asked, brief_samples=len(columns) - 1), ALL) is None, (
        "too many samples"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_module, "_SHORT_LIST", 1)
        assert executor.answer_from_memory(listed, ALL) is None


def found(store, scope, **parts):
    return set(run(store, SeriesQuestion(**parts), scope).series)


def test_series_are_those_that_the_asker_may_see(store):
    metric = frozenset({"cpu.time"})
    assert found(store, ALL, metrics=metric) == {MINE, SECOND, FOREIGN}
    assert found(store, LAB, metrics=metric) == {MINE, SECOND}
    assert found(store, LAB) == {MINE, SECOND, NODE}
    assert found(store, Scope(frozenset({"lab"}), "j1")) == {MINE}
    assert found(store, Scope(frozenset({"lab"}), "j1"), jobs=(SECOND.job_key,)) == set()
    assert found(store, LAB, jobs=(FOREIGN.job_key, MINE.job_key)) == {MINE}
    assert found(store, Scope(frozenset())) == set()
    assert found(store, ALL, since_ms=NOW + 10 * DAY) == set()


def test_more_series_than_a_question_may_read_are_refused(store):
    with pytest.raises(LimitExceededError):
        run(store, SeriesQuestion(metrics=frozenset({"cpu.time"})), query_series=2)


def test_names_are_those_that_the_asker_may_see(store):
    def names(part, scope=LAB, **more):
        return run(store, NamesQuestion(part=part, **more), scope)

    assert names(NamePart.METRIC) == ["cpu.time", "node.load1"]
    assert names(NamePart.REPLICA) == ["w-0"]
    assert names(NamePart.REPLICA, OTHER) == ["w-9"]
    assert names(NamePart.REPLICA, ALL, prefix="w", limit=1) == ["w-0"]
    assert names(NamePart.JOB, Scope(frozenset({"lab"}), "j2")) == ["j2"]
    assert names(NamePart.NODE, Scope(frozenset({"lab"}), "j2")) == []
    assert names(NamePart.LABEL_VALUE) == ["b"]


def test_readings_of_a_counter_are_as_they_were_read(store):
    columns = run(store, SamplesQuestion(series=(SECOND, MINE), range=SPAN), LAB).columns
    assert columns.index.tolist() == [0] * 10 + [1] * 10
    assert columns.value.tolist()[:6] == [0, 10, 20, 30, 5, 15]
    steps = run(store, BucketsQuestion(series=(MINE,), range=SPAN, step_ms=5 * MINUTE), LAB)
    assert (steps.columns.first.tolist(), steps.columns.last.tolist()) == ([0, 15], [5, 55])
    assert (steps.columns.sum.tolist(), steps.samples) == ([65, 175], 10)
    assert run(store, SamplesQuestion(series=(), range=SPAN), LAB).columns.time.tolist() == []


def test_the_last_reading_is_that_of_each_series(store):
    last = run(store, LastQuestion(series=(MINE, NODE)), LAB).columns
    assert list(zip(last.index.tolist(), last.value.tolist(), strict=True)) == [(0, 55.0), (1, 55.0)]
    assert run(store, LastQuestion(series=(MINE,), since_ms=NOW), LAB).columns.time.tolist() == []
    assert run(store, LastQuestion(series=()), LAB).columns.time.tolist() == []


@pytest.mark.parametrize(
    "question",
    [
        SamplesQuestion(series=(FOREIGN,), range=SPAN),
        BucketsQuestion(series=(MINE, FOREIGN), range=SPAN, step_ms=MINUTE),
        LastQuestion(series=(FOREIGN,)),
    ],
)
def test_readings_of_others_do_not_exist(store, question):
    with pytest.raises(NotFoundError):
        run(store, question, LAB)
    with pytest.raises(NotFoundError):
        run(store, question, Scope(frozenset({"other"}), "j2"))


def test_a_question_holds_only_so_many_samples(store):
    with pytest.raises(LimitExceededError):
        run(store, SamplesQuestion(series=(MINE,), range=SPAN), query_points=2)
    with pytest.raises(LimitExceededError):
        run(store, SamplesQuestion(series=(MINE,), range=SPAN), query_rows=2)
