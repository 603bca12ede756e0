"""Values that never change, written again and again while hours are rolled up: every answer is exactly what they make."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.time import DAY, HOUR, MINUTE, SystemClock, TimeRange, parse_time
from jobmeter.query.reduce import coarsen
from jobmeter.query.source import Meter, StoreSource, buckets
from jobmeter.settings import Limits
from jobmeter.store.clickhouse.journal import JournalLimits
from jobmeter.store.window.store import WindowedStore
from jobmeter.testing.samples import FOREVER
from jobmeter.testing.slot import Slot

START = parse_time("2026-10-30")
DAYS, STEP, SERIES = 4, MINUTE, 8  # over the end of a month: days and months have parts of their own
QUESTIONS = 20
TIMES = START + np.arange(0, DAYS * DAY, STEP, dtype=np.int64) + 7_000


class Still:
    """A store with series whose values are known by their places."""

    def __init__(self, store: WindowedStore, seed: int) -> None:
        self.store = store
        slot = Slot()
        self.series = [slot.gauge(f"worker-{number}") for number in range(SERIES)]
        self.keys = SeriesKeys.of(self.series)
        self.value = np.round(np.random.default_rng(seed).random((SERIES, len(TIMES))) * 100, 2)
        self.total = self.value.reshape(SERIES, -1, HOUR // STEP).sum(axis=2)

    def write(self, chosen: np.ndarray, first: int, end: int) -> None:
        """Some of the samples of some series."""
        count = end - first
        index = np.repeat(np.arange(len(chosen), dtype=np.uint32), count)
        batch = SampleBatch(
            [self.series[number] for number in chosen.tolist()],
            index,
            np.tile(TIMES[first:end], len(chosen)),
            self.value[chosen, first:end].reshape(-1),
        )
        self.store.append(batch, FOREVER)

    def check(self, source: StoreSource, chosen: np.ndarray, span: TimeRange, step_ms: int) -> None:
        """The hours of some series over a span of whole hours."""
        keys = SeriesKeys(self.keys.job[chosen], self.keys.series[chosen])
        meter, gauges = Meter(SystemClock(), Limits()), np.zeros(len(chosen), np.bool_)
        found = coarsen(buckets(source, keys, gauges, span, step_ms, owned_ms=0, meter=meter), HOUR)
        first, end = (span.start_ms - START) // HOUR, (span.end_ms - START) // HOUR
        assert len(found) == len(chosen) * (end - first), (span, step_ms, meter.tiers)
        assert (found.count == HOUR // STEP).all(), (span, step_ms, meter.tiers)
        expected = self.total[chosen, first:end].reshape(-1)
        assert np.allclose(found.sum, expected, rtol=1e-12), (span, step_ms, meter.tiers)


@pytest.fixture
def store(empty_store, monkeypatch) -> WindowedStore:
    """Everything is small: many flushes, inserts of few days, statements of a few hours, reads in many groups."""
    monkeypatch.setattr(empty_store._keeper, "_limits", JournalLimits(flush_rows=4_000, day_rows=1_000))
    monkeypatch.setattr("jobmeter.store.clickhouse.commit._ROWS", 3_000)
    monkeypatch.setattr("jobmeter.store.clickhouse.rollup._ROWS", 12_000)
    monkeypatch.setattr("jobmeter.store.clickhouse.reader._BUFFER", 10_000)
    return WindowedStore(empty_store, SystemClock(), length_ms=HOUR, bound=2**24)


@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_exact_while_the_same_is_written_again_and_rolled_up(store: WindowedStore, seed: int) -> None:
    still = Still(store, seed)
    for first in range(0, SERIES, 2):
        still.write(np.arange(first, first + 2), 0, len(TIMES))
    asked, failures = threading.Event(), list[BaseException]()

    def until_asked(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not asked.is_set():
                    work()
            except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
                failures.append(error)

        return run

    generator = np.random.default_rng([seed, 1])

    def write_again() -> None:
        midnight = int(generator.integers(1, DAYS)) * (DAY // STEP)
        before, behind = generator.integers(1, 90, 2).tolist()
        still.write(generator.permutation(SERIES)[:2], midnight - before, midnight + behind)
        asked.wait(0.1)

    works = (write_again, lambda: store.roll_up(START + DAYS * DAY))
    threads = [threading.Thread(target=until_asked(work)) for work in works]
    for thread in threads:
        thread.start()
    try:
        questions, source = np.random.default_rng([seed, 2]), StoreSource(store)
        for number in range(QUESTIONS):
            first, end = sorted(questions.choice(DAYS * 24 + 1, 2, replace=False).tolist())
            if number % 2:
                end = -(-end // 24) * 24 - 23  # the last hour is that behind a midnight
                first = min(first, end - 1)
            span = TimeRange(START + first * HOUR, START + end * HOUR)
            chosen = questions.permutation(SERIES)[: int(questions.integers(1, SERIES + 1))]
            still.check(source, chosen, span, int(questions.choice([HOUR, HOUR, MINUTE])))
    finally:
        asked.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    store.roll_up(START + DAYS * DAY)
    for step_ms in (HOUR, MINUTE, 1_000):
        still.check(StoreSource(store), np.arange(SERIES), TimeRange(START, START + DAYS * DAY), step_ms)
