"""Tests of rewriting constant values while hours are rolled up: every answer stays exact."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from tests.store_contract.samples import FOREVER
from tests.store_contract.slot import Slot

from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.time import DAY, HOUR, MINUTE, SystemClock, TimeRange, parse_time
from jobmeter.query.meter import Meter
from jobmeter.query.reduce import coarsen
from jobmeter.query.source import Source, read_series_buckets
from jobmeter.settings import Limits
from jobmeter.store.cache import Cache
from jobmeter.store.clickhouse.journal import JournalLimits
from jobmeter.store.window.store import WindowedStore

START = parse_time("2026-10-30")
DAYS, STEP, SERIES = 4, MINUTE, 8  # across the end of a month, because days and months have separate parts
QUESTIONS = 20
TIMES = START + np.arange(0, DAYS * DAY, STEP, dtype=np.int64) + 7_000


class Still:
    """Store with series whose values follow from their positions."""

    def __init__(self, store: WindowedStore, seed: int) -> None:
        self.store = store
        slot = Slot()
        self.series = [slot.gauge(f"worker-{number}") for number in range(SERIES)]
        self.keys = SeriesKeys.from_series(self.series)
        self.value = np.round(np.random.default_rng(seed).random((SERIES, len(TIMES))) * 100, 2)
        self.total = self.value.reshape(SERIES, -1, HOUR // STEP).sum(axis=2)

    def write(self, chosen: np.ndarray, first: int, end: int) -> None:
        """Write some of the samples of some series."""
        count = end - first
        index = np.repeat(np.arange(len(chosen), dtype=np.uint32), count)
        batch = SampleBatch(
            [self.series[number] for number in chosen.tolist()],
            index,
            np.tile(TIMES[first:end], len(chosen)),
            self.value[chosen, first:end].reshape(-1),
        )
        self.store.append_all((batch,), FOREVER)

    def check(self, source: Source, chosen: np.ndarray, span: TimeRange, step_ms: int) -> None:
        """Check the hours of some series over a span of whole hours."""
        keys = SeriesKeys(self.keys.job[chosen], self.keys.series[chosen])
        meter, gauges = Meter(SystemClock(), Limits()), np.zeros(len(chosen), np.bool_)
        found = coarsen(read_series_buckets(source, keys, gauges, span, step_ms, owned_ms=0, meter=meter), HOUR)
        first, end = (span.start_ms - START) // HOUR, (span.end_ms - START) // HOUR
        assert len(found) == len(chosen) * (end - first), (span, step_ms, meter.tiers)
        assert (found.count == HOUR // STEP).all(), (span, step_ms, meter.tiers)
        expected = self.total[chosen, first:end].reshape(-1)
        assert np.allclose(found.sum, expected, rtol=1e-12), (span, step_ms, meter.tiers)


@pytest.fixture
def store(empty_store, monkeypatch) -> WindowedStore:
    """Return a store with small limits: many flushes, inserts of few days, short statements, reads in many groups."""
    monkeypatch.setattr(empty_store.commit_log, "_limits", JournalLimits(flush_rows=4_000, day_rows=1_000))
    monkeypatch.setattr("jobmeter.store.clickhouse.commit._ROWS", 3_000)
    monkeypatch.setattr("jobmeter.store.clickhouse.rollup._ROWS", 12_000)
    monkeypatch.setattr("jobmeter.store.clickhouse.reader._BUFFER", 10_000)
    return WindowedStore(empty_store, SystemClock(), length_ms=HOUR, bound=2**24)


@contextmanager
def going_on(*works: Callable[[], object]) -> Iterator[None]:
    """Repeat each work in its own thread inside the block; an exception in a thread fails the test."""
    ended, failures = threading.Event(), list[BaseException]()

    def run(work: Callable[[], object]) -> None:
        try:
            while not ended.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def span_of(number: int, questions: np.random.Generator) -> TimeRange:
    """Return a span of hours; every second one ends one hour after a midnight."""
    first, end = sorted(questions.choice(DAYS * 24 + 1, 2, replace=False).tolist())
    if number % 2:
        end = -(-end // 24) * 24 - 23
        first = min(first, end - 1)
    return TimeRange(START + first * HOUR, START + end * HOUR)


@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_exact_while_the_same_is_written_again_and_rolled_up(store: WindowedStore, seed: int) -> None:
    still, source = Still(store, seed), Source(store, Cache())
    for first in range(0, SERIES, 2):
        still.write(np.arange(first, first + 2), 0, len(TIMES))
    again, questions = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])

    def write_again() -> None:
        midnight = int(again.integers(1, DAYS)) * (DAY // STEP)
        before, behind = again.integers(1, 90, 2).tolist()
        still.write(again.permutation(SERIES)[:2], midnight - before, midnight + behind)

    with going_on(write_again, lambda: store.roll_up(START + DAYS * DAY)):
        for number in range(QUESTIONS):
            chosen = questions.permutation(SERIES)[: int(questions.integers(1, SERIES + 1))]
            still.check(source, chosen, span_of(number, questions), int(questions.choice([HOUR, HOUR, MINUTE])))
    store.roll_up(START + DAYS * DAY)
    for step_ms in (HOUR, MINUTE, 1_000):
        still.check(Source(store, Cache()), np.arange(SERIES), TimeRange(START, START + DAYS * DAY), step_ms)
