"""Tests of long ranges: roll-ups give the values of raw samples, whatever their contents and the sample times."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.principal import Scope
from jobmeter.dialects.base import OperationRun, drive
from jobmeter.dialects.prometheus.names import make_own_name
from jobmeter.dialects.prometheus.select import prefetch
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import Series
from jobmeter.model.special import STALE_CODE, make_special
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND
from jobmeter.promql import reads
from jobmeter.promql.evaluate import evaluate
from jobmeter.promql.evaluation import EXPIRED, LOOKBACK_MS
from jobmeter.promql.over_time import ROLLED
from jobmeter.promql.parse import parse
from jobmeter.promql.values import Vector
from jobmeter.query import rollups
from jobmeter.query.execute import Executor
from jobmeter.query.rollups import RollupsQuestion
from jobmeter.query.series import SamplesQuestion
from jobmeter.settings import Limits
from jobmeter.store.window.store import WindowedStore

COUNTER, GAUGE, OTHER = "cpu.time", "cpu.usage", "external.requests_total"
NAMES = {COUNTER: make_own_name(COUNTER), GAUGE: make_own_name(GAUGE), OTHER: "requests_total"}


class FadedStore(MemoryStore):
    """Store whose older samples have expired; their roll-ups remain."""

    raw_since = minutes_since = 0

    def get_revision(self, jobs):
        """Return a number: nobody else writes, so minutes can come from the roll-ups too."""
        return (self.raw_since, self.minutes_since)

    def read(self, keys, span, budget):
        for block in super().read(keys, span, budget):
            yield block.select(block.time >= self.raw_since)

    def read_buckets(self, keys, span, tier, budget):
        found = super().read_buckets(keys, span, tier, budget)
        if tier == HOUR:
            return found
        return found.select(found.time >= self.minutes_since)


def filled(rng: random.Random, length_ms: int, *, special: bool = False) -> FadedStore:
    """Return a store with random series: gaps, resets, samples on and off boundaries, and hours without roll-ups."""
    store = FadedStore()
    for number in range(rng.randrange(1, 4)):
        for metric in NAMES:
            interval = rng.choice((15, 30, 60, 61, 300, 7_000)) * SECOND
            at = NOW - length_ms + rng.choice((0, 1, rng.randrange(5 * HOUR)))
            value, times, values = rng.choice((0.0, rng.uniform(0, 1e9))), [], []
            while at < NOW:
                if metric == GAUGE:
                    value = rng.choice((value, rng.gauss(0, 100), 0.0))
                else:
                    value = value + rng.choice((0, 1, rng.uniform(0, 50))) if rng.random() > 0.02 else rng.uniform(0, 5)
                times.append(at)
                values.append(value)
                at += interval if rng.random() > 0.02 else rng.randrange(interval, 10 * interval)
                at += rng.choice((0, 0, 0, rng.randrange(1_000)))
            series = Series(metric, "lab", job="j", replica=f"w-{number}", node="n")
            rows = np.zeros(len(times), np.uint32)
            store.append_all((SampleBatch([series], rows, np.array(times, np.int64), np.array(values)),))
            if special:
                put_special(rng, store, series, times)
    store.roll_up(NOW - rng.randrange(5 * HOUR))
    return store


def put_special(rng: random.Random, store: FadedStore, series: Series, times: list[int]) -> None:
    """Store stale markers or other special values beside some samples of a series, at the same times."""
    kinds = rng.choice(((STALE_CODE,), (1.0, 2.0, 3.0, 4.0)))
    chosen = rng.sample(times, rng.randrange(min(5, len(times))))
    at = np.array([one + rng.choice((0, 1)) for one in chosen], np.int64)
    codes = np.array([rng.choice(kinds) for _ in chosen], float)
    store.append_all((SampleBatch([make_special(series)], np.zeros(len(at), np.uint32), at, codes),))


def asked(store: MemoryStore, query: str, times: Sequence[int], limits: Limits | None = None):
    """Return the value of a query, its notes, and its questions about samples."""
    executor = Executor(store, FakeRegistry(), SetClock(), limits or Limits())
    questions = []

    def answer(question):
        questions.append(question)
        return executor.run(question, Scope(None))

    node, grid = parse(query), np.array(times, np.int64)
    reader = drive(prefetch(node, grid, LOOKBACK_MS, None), answer)
    found = evaluate(node, reader, grid)
    assert isinstance(found.value, Vector)
    rows = {
        labels: [value if there else None for value, there in zip(row, present, strict=True)]
        for labels, row, present in zip(
            found.value.labels, found.value.values.tolist(), found.value.present.tolist(), strict=True
        )
    }
    return rows, found.infos, [one for one in questions if isinstance(one, SamplesQuestion | RollupsQuestion)]


def same(one, other) -> bool:
    """Return True if two answers agree to 1e-9 of the value, or to 1e-7 near zero."""
    return one.keys() == other.keys() and all(
        (left is None) == (right is None)
        and (left is None or left == pytest.approx(right, rel=1e-9, abs=1e-7, nan_ok=True))
        for name in one
        for left, right in zip(one[name], other[name], strict=True)
    )


@pytest.fixture
def always_rolled(monkeypatch):
    """Use roll-ups for any number of samples."""
    monkeypatch.setattr(rollups, "_ROWS_OF_SEGMENT", 0)


@pytest.mark.usefixtures("always_rolled")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(seed=st.integers(0, 2**32), function=st.sampled_from(sorted(ROLLED)))
def test_rolled_up_ranges_have_the_values_of_raw_samples(seed, function):
    rng = random.Random(seed)
    special = rng.random() < 0.5
    store = filled(rng, 14 * HOUR, special=special)
    length = rng.choice((3 * HOUR, 5 * HOUR, 3 * HOUR + 17 * MINUTE, 8_000 * SECOND + 1))
    end = NOW - rng.choice((0, 1, rng.randrange(HOUR), HOUR, NOW % HOUR, NOW % MINUTE, NOW % MINUTE + 1))
    times = [end - HOUR * step for step in reversed(range(rng.randrange(1, 4)))]
    for name in NAMES.values():
        query = f"{function}({name}[{length}ms])"
        rolled, _, questions = asked(store, query, times)
        assert special or any(isinstance(one, RollupsQuestion) for one in questions)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reads, "MOST_CUTS", 0)
            raw, _, questions = asked(store, query, times)
        # No question is asked if each series ended before the range.
        assert not any(isinstance(one, RollupsQuestion) for one in questions)
        assert same(rolled, raw), (query, rolled, raw)


@pytest.mark.usefixtures("always_rolled")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(seed=st.integers(0, 2**32), function=st.sampled_from(sorted(ROLLED)))
def test_windows_of_whole_minutes_have_the_values_of_raw_samples(seed, function):
    rng = random.Random(seed)
    store = filled(rng, 9 * HOUR)
    step, ahead = rng.choice((1, 5, 7, 60)) * MINUTE, rng.choice((0, 0, 1, 30 * SECOND))
    end = NOW - NOW % step + rng.choice((-1, 0, 1)) * step + ahead
    times = [end - step * back for back in reversed(range(rng.randrange(2, 100)))]
    for name in NAMES.values():
        query = f"{function}({name}[{step * rng.choice((1, 2, 3))}ms])"
        rolled, _, _ = asked(store, query, times)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reads, "MOST_CUTS", 0)
            raw, _, _ = asked(store, query, times)
        assert same(rolled, raw), (query, rolled, raw)


@pytest.mark.usefixtures("always_rolled")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(seed=st.integers(0, 2**32), function=st.sampled_from(sorted(ROLLED)))
def test_expired_samples_are_answered_exactly_or_a_note_says_so(seed, function):
    rng = random.Random(seed)
    store = filled(rng, 3 * DAY)
    length = rng.choice((3 * HOUR, 26 * HOUR, 8_000 * SECOND + 1))
    times = [NOW - rng.choice((40 * HOUR, 41 * HOUR + 1, 45 * HOUR - NOW % HOUR - 1, rng.randrange(50 * HOUR)))]
    whole = {name: asked(store, f"{function}({name}[{length}ms])", times)[0] for name in NAMES.values()}
    store.raw_since = NOW - rng.choice((15 * HOUR, 47 * HOUR, 60 * HOUR))
    store.minutes_since = rng.choice((0, NOW - 50 * HOUR))
    for name, wanted in whole.items():
        found, infos, _ = asked(store, f"{function}({name}[{length}ms])", times)
        if infos[-1:] != [EXPIRED] and times[0] - length > NOW - 2 * DAY:
            continue  # too young for the retention of the project
        assert same(found, wanted) or EXPIRED in infos, (name, found, wanted)


def test_a_query_that_needs_expired_samples_says_so():
    store = filled(random.Random(1), 4 * DAY)
    query = f"quantile_over_time(0.5, {NAMES[GAUGE]}[3d])"
    assert EXPIRED not in asked(store, query, [NOW])[1]
    store.raw_since = NOW - DAY
    assert EXPIRED in asked(store, query, [NOW])[1]


def test_a_long_range_of_many_series_reads_few_rows():
    """A day of 64 series with 15 seconds between samples reads raw samples around the two ends alone."""
    store, times = FadedStore(), np.arange(NOW - 2 * DAY, NOW, 15 * SECOND)
    made = [Series(GAUGE, "lab", job="j", replica=f"w-{number}", node="n") for number in range(64)]
    for series in made:
        store.append_all((SampleBatch([series], np.zeros(len(times), np.uint32), times, np.sin(times / 1e6)),))
    store.roll_up(NOW)
    read = []

    class Counting(FadedStore):
        def read(self, keys, span, budget):
            for block in super().read(keys, span, budget):
                read.append(len(block))
                yield block

    store.__class__ = Counting
    rows, _, _ = asked(store, f"max_over_time({NAMES[GAUGE]}[1d])", [NOW - HOUR + 7])
    assert len(rows) == 64
    assert sum(read) <= 64 * 2 * 4


def test_a_brief_query_is_answered_from_memory_and_a_longer_one_by_a_worker():
    """The event loop answers a panel of few series. The answer does not depend on the process."""
    clock = SetClock()
    store = WindowedStore(MemoryStore(), clock, length_ms=2 * HOUR, bound=1 << 24)
    executor = Executor(store, FakeRegistry(), clock, Limits())
    times = np.arange(NOW - HOUR, NOW, 15 * SECOND)
    for number in range(8):
        series = Series(GAUGE, "lab", job="j", replica=f"w-{number}", node="n")
        store.append_all((SampleBatch([series], np.zeros(len(times), np.uint32), times, np.sin(times / 1e6) * number),))

    def answered(query: str, step: int):
        grid = np.arange(NOW - 50 * MINUTE, NOW, step, dtype=np.int64)

        def start():
            return OperationRun(prefetch(parse(query), grid, LOOKBACK_MS, "lab"))

        by_worker = start().finish(lambda question: executor.run(question, Scope(None)))
        from_memory = start().advance(lambda question: executor.answer_from_memory(question, Scope(None)))
        if from_memory is not None:
            one, other = (evaluate(parse(query), reader, grid).value for reader in (by_worker, from_memory))
            assert isinstance(one, Vector)
            assert isinstance(other, Vector)
            assert one.labels == other.labels
            assert np.array_equal(one.values, other.values, equal_nan=True)
        return from_memory is not None, len(next(iter(by_worker.samples.values())).labels)

    gauge = f'{NAMES[GAUGE]}{{job_id="j"}}'
    assert answered(f"avg by (replica) (avg_over_time({gauge}[5m]))", 5 * MINUTE) == (True, 8)
    assert answered(gauge, 5 * MINUTE) == (True, 8)
    assert answered(f'{NAMES[GAUGE]}{{job_id="j",replica="w-1"}}', 15 * SECOND) == (True, 1)
    assert answered(f"avg by (replica) (avg_over_time({gauge}[5m]))", 5 * SECOND) == (False, 8), "many values"
    assert answered(f"topk(2, {gauge})", 5 * MINUTE) == (False, 8), "a loop over times"
    assert answered(f'{NAMES[GAUGE]}{{job_id="other"}}', 5 * MINUTE) == (True, 0)
    dense = Series(GAUGE, "lab", job="j", replica="dense", node="n")
    times = np.arange(NOW - HOUR, NOW, SECOND)
    store.append_all((SampleBatch([dense], np.zeros(len(times), np.uint32), times, np.sin(times / 1e6)),))
    gauge = f'{NAMES[GAUGE]}{{job_id="j",replica="dense"}}'
    assert answered(f"max_over_time({gauge}[5m])", 5 * MINUTE) == (True, 1)
    assert answered(f"max_over_time({gauge}[5m])", 5 * SECOND) == (False, 1), "each sample is in many windows"
    assert answered(f"deriv({gauge}[5m])", 30 * SECOND) == (False, 1), "samples of windows are copied"
    assert answered(f"max_over_time({gauge}[30m] @ {NOW // SECOND})", 15 * SECOND) == (False, 1), "in all windows"


@pytest.mark.usefixtures("always_rolled")
def test_a_question_has_a_limit_over_all_its_parts():
    store, times = FadedStore(), np.arange(NOW - 2 * DAY, NOW, 15 * SECOND)
    for number in range(8):
        series = Series(GAUGE, "lab", job="j", replica=f"w-{number}", node="n")
        store.append_all((SampleBatch([series], np.zeros(len(times), np.uint32), times, np.sin(times / 1e6)),))
    store.roll_up(NOW)
    # Of eight series some 60 minutes around each of two cuts, and 23 hours: no part exceeds 480 rows.
    query, end = f"max_over_time({NAMES[GAUGE]}[1d])", NOW // HOUR * HOUR - HOUR // 2
    assert len(asked(store, query, [end], Limits(query_points=400))[0]) == 8
    with pytest.raises(LimitExceededError):
        asked(store, query, [end], Limits(query_points=150))
