"""Tests of the store contract with the hot window: wide, tiny, and starved of memory."""

import contextlib
import random
import tracemalloc
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.store_contract.store import StoreTests
from tests.support.memory_store import MemoryStore

from jobmeter.errors import LimitExceededError, QueryTimeoutError, UnavailableError
from jobmeter.model.batch import SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SECOND, TimeRange, parse_time
from jobmeter.store.base import NEWEST, ReadBudget, SeriesSelector, Store
from jobmeter.store.cache import Cache
from jobmeter.store.window import store as window_store
from jobmeter.store.window.store import WindowedStore
from jobmeter.store.window.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

ALWAYS = 10**13
BEGIN = parse_time("2030-06-01")


class HandClock:
    """Clock that a test sets."""

    def __init__(self, now_ms: int) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


class TestWide(StoreTests):
    """Store contract with all data in the window."""

    @pytest.fixture
    def store(self) -> Store:
        return WindowedStore(MemoryStore(), HandClock(parse_time("2029-12-01")), length_ms=ALWAYS, bound=2**30)


class TestPast(StoreTests):
    """Store contract with all data older than the window."""

    @pytest.fixture
    def store(self) -> Store:
        return WindowedStore(MemoryStore(), HandClock(parse_time("2099-01-01")), length_ms=HOUR, bound=2**30)


class TestStarved(StoreTests):
    """Store contract without enough memory."""

    @pytest.fixture
    def store(self) -> Store:
        return WindowedStore(MemoryStore(), HandClock(parse_time("2029-12-01")), length_ms=ALWAYS, bound=4096)


class Engine(MemoryStore):
    """Engine that counts its reads."""

    reads = 0

    def read(self, *arguments, **named):
        self.reads += 1
        return super().read(*arguments, **named)


def gauge(replica: str) -> Series:
    return Series("gpu.power", job="job", replica=replica)


@pytest.mark.parametrize("bound", [2**30, 6000])
@pytest.mark.parametrize("seed", range(12))
def test_time_goes_on_and_every_question_is_answered_as_by_the_engine_alone(seed: int, bound: int) -> None:
    generator = random.Random(seed)
    clock = HandClock(BEGIN)
    engine = MemoryStore()
    store = WindowedStore(engine, clock, length_ms=10 * MINUTE, bound=bound)
    series = [gauge(f"worker-{number}") for number in range(4)]
    for _ in range(150):
        clock.now += generator.choice([SECOND, 20 * SECOND, 3 * MINUTE])
        rows: dict[tuple[Series, int], float] = {}
        for one in generator.sample(series, generator.randint(1, 4)):
            for _ in range(generator.randint(1, 5)):
                late = generator.choice([0, 0, 5 * SECOND, 9 * MINUTE, 11 * MINUTE, 2 * HOUR])
                rows[one, clock.now - late - generator.randrange(10) * SECOND] = generator.randrange(100) / 4
        store.append_all((batch_of(rows),), FOREVER)
        start = clock.now - generator.choice([MINUTE, 9 * MINUTE, 12 * MINUTE, 3 * HOUR])
        span = TimeRange(start, start + generator.choice([SECOND, 5 * MINUTE, 4 * HOUR]))
        asked = generator.sample(series, generator.randint(1, 4))
        assert read_all(store, asked, span) == read_all(engine, asked, span)
        ours = store.read_previous(SeriesKeys.from_series(asked), start, ReadBudget())
        theirs = engine.read_previous(SeriesKeys.from_series(asked), start, ReadBudget())
        for name in ("index", "time", "value"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name))
        selector = SeriesSelector(jobs=(series[0].job_key,), since=span.start_ms)
        assert set(store.find(selector)) >= set(engine.find(selector))
    assert store.window.bytes <= max(bound, 20_000)


def test_the_last_hour_does_not_read_the_engine() -> None:
    clock = HandClock(BEGIN)
    engine = Engine()
    store = WindowedStore(engine, clock, length_ms=2 * HOUR, bound=2**30)
    one = gauge("worker-0")
    for minute in range(400):
        clock.now = BEGIN + minute * MINUTE
        store.append_all((batch_of({(one, clock.now): float(minute)}),), FOREVER)
    engine.reads = 0
    span = TimeRange(clock.now - HOUR, clock.now)
    assert len(read_all(store, [one], span)) == 60
    assert engine.reads == 0
    assert len(read_all(store, [one], TimeRange(BEGIN, clock.now))) == 399
    assert engine.reads == 1


@pytest.mark.parametrize("failing", [False, True])
def test_a_series_that_is_looked_for_while_it_is_written_first_is_found_afterwards(*, failing: bool) -> None:
    selector = SeriesSelector(jobs=(gauge("worker-0").job_key,))

    class Asked(MemoryStore):
        """Engine with a query for the job's series just before new ones become visible."""

        def append_all(self, *arguments, **named):
            store.find(selector)
            super().append_all(*arguments, **named)
            if failing:
                raise UnavailableError("the connection was lost")

    store = WindowedStore(Asked(), HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    expected = set()
    for number in range(3):
        expected.add(gauge(f"worker-{number}"))
        with pytest.raises(UnavailableError) if failing else contextlib.nullcontext():
            store.append_all((batch_of({(gauge(f"worker-{number}"), BEGIN): 1.0}),), FOREVER)
        assert set(store.find(selector)) == expected


def test_a_list_of_series_that_is_as_old_as_a_new_series_is_not_cached() -> None:
    selector = SeriesSelector(jobs=(gauge("worker-0").job_key,))

    class Slow(MemoryStore):
        """Engine that receives new series while a query for series is in progress."""

        def find(self, *arguments):
            found = super().find(*arguments)
            if not found:
                store.append_all((batch_of({(gauge("worker-0"), BEGIN): 1.0}),), FOREVER)
            return found

    store = WindowedStore(Slow(), HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    assert store.find(selector) == []
    assert store.find(selector) == [gauge("worker-0")]


def test_what_was_there_before_the_start_is_taken_in() -> None:
    clock = HandClock(BEGIN)
    engine = Engine()
    one = gauge("worker-0")
    engine.append_all((batch_of({(one, BEGIN - at * MINUTE): float(at) for at in range(1, 50)}),), FOREVER)
    store = WindowedStore(engine, clock, length_ms=HOUR, bound=2**30)
    store.append_all((batch_of({(one, BEGIN): 0.0}),), FOREVER)
    engine.reads = 0
    assert len(read_all(store, [one], TimeRange(BEGIN - 30 * MINUTE, BEGIN + 1))) == 31
    assert engine.reads == 0


def test_a_deleted_job_is_gone_from_the_window_too() -> None:
    store = WindowedStore(MemoryStore(), HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    one = gauge("worker-0")
    store.append_all((batch_of({(one, BEGIN): 1.0}),), FOREVER)
    store.delete_job(one.job_key)
    assert read_all(store, [one], TimeRange(BEGIN - HOUR, BEGIN + HOUR)) == {}
    assert store.find(SeriesSelector(jobs=(one.job_key,))) == []


def test_its_size_is_reported() -> None:
    store = WindowedStore(MemoryStore(), HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    store.append_all((batch_of({(gauge("worker-0"), BEGIN): 1.0, (gauge("worker-1"), BEGIN): 1.0}),), FOREVER)
    window = store.read_statistics().window
    assert window["series"] == 2
    assert window["seconds"] == 3600
    assert window["bytes"] > 0


def test_after_a_start_the_newest_samples_are_brought_in_some_series_at_a_time() -> None:
    engine = Engine()
    series = [gauge(f"worker-{number}") for number in range(10)]
    rows = {(one, BEGIN - at * MINUTE): float(at) for one in series for at in range(1, 90)}
    engine.append_all((batch_of(rows),), FOREVER)
    store = WindowedStore(engine, HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    assert [store.fill(4) for _ in range(3)] == [True, True, False]
    engine.reads = 0
    span = TimeRange(BEGIN - HOUR, BEGIN)
    assert read_all(store, series, span) == {key: value for key, value in rows.items() if span.start_ms <= key[1]}
    assert engine.reads == 0


def test_filling_stops_where_the_window_is_full_and_what_comes_meanwhile_is_stored() -> None:
    engine = Engine()
    series = [gauge(f"worker-{number}") for number in range(40)]
    rows = {(one, BEGIN - at * SECOND): float(at) for one in series for at in range(1, 300)}
    engine.append_all((batch_of(rows),), FOREVER)
    store = WindowedStore(engine, HandClock(BEGIN), length_ms=HOUR, bound=60_000)
    more = store.fill(5)
    store.append_all((batch_of({(series[-1], BEGIN): -1.0}),), FOREVER)
    while more:
        more = store.fill(5)
    assert 0 < len(store.window) < len(series)
    assert store.window.bytes <= 60_000
    span = TimeRange(BEGIN - HOUR, BEGIN + 1)
    assert read_all(store, series, span) == read_all(engine, series, span)


@pytest.mark.parametrize("bound", [2**30, 60_000])
def test_any_number_of_series_is_brought_in_page_by_page_those_of_the_last_day_first(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_store, "_PAGE_SERIES", 7)

    class Large(Engine):
        """Engine with more series than one answer may have."""

        pages = 0

        def find(self, selector):
            raise LimitExceededError("more than a million series match")

        def list_live_series(self, since_ms, most, place=NEWEST):
            self.pages += 1
            found = super().list_live_series(since_ms, most, place)
            assert len(found.keys) <= most == 7
            return found

    engine, clock = Large(), HandClock(BEGIN + MINUTE)
    late, early = ([gauge(f"{day}-{number}") for number in range(60)] for day in ("today", "yesterday"))
    for series, newest in ((late, BEGIN), (early, BEGIN - MINUTE)):
        engine.append_all(
            (batch_of({(one, newest - at * MINUTE): float(at) for one in series for at in range(5)}),), FOREVER
        )
    store = WindowedStore(engine, clock, length_ms=HOUR, bound=bound)
    rounds = 0
    while store.fill(4):
        rounds += 1
    assert rounds <= (60 + 60) // 4 + engine.pages
    engine.reads = 0
    span = TimeRange(clock.now - HOUR, clock.now + 1)
    held = [one for one in late + early if not store.window.find_missing(SeriesKeys.from_series([one])).any()]
    assert held == (late + early if bound == 2**30 else [one for one in late if one in held])
    assert held
    for one in held:
        assert len(read_all(store, [one], span)) == 5
    assert engine.reads == 0
    # Data without room in memory is read from the engine, with or without a page.
    assert len(read_all(store, late + early, span)) == 600
    assert store.window.bytes <= max(bound, 20_000)


def test_series_with_very_many_samples_are_brought_in_one_by_one_or_stay_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_store, "_ADOPTED_ROWS", 100)
    engine = Engine()
    series = [gauge(f"worker-{number}") for number in range(5)]
    rows = {
        (one, BEGIN - at): 1.0 for one, most in zip(series, (40, 90, 101, 100, 1), strict=True) for at in range(most)
    }
    engine.append_all((batch_of(rows),), FOREVER)
    store = WindowedStore(engine, HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    assert not store.fill(10)
    span = TimeRange(BEGIN - HOUR, BEGIN + 1)
    for one in series:
        engine.reads = 0
        assert len(read_all(store, [one], span)) == sum(key[0] == one for key in rows)
        assert engine.reads == (one == series[2])


def test_series_that_could_not_be_read_are_filled_later() -> None:
    class Failing(Engine):
        fails = True

        def read(self, *arguments, **named):
            if self.fails:
                raise UnavailableError("the engine does not answer")
            return super().read(*arguments, **named)

    engine = Failing()
    one = gauge("worker-0")
    engine.append_all((batch_of({(one, BEGIN - SECOND): 1.0}),), FOREVER)
    store = WindowedStore(engine, HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    with pytest.raises(UnavailableError):
        store.fill(10)
    engine.fails = False
    assert not store.fill(10)
    engine.reads = 0
    assert read_all(store, [one], TimeRange(BEGIN - HOUR, BEGIN)) == {(one, BEGIN - SECOND): 1.0}
    assert engine.reads == 0


def test_a_store_that_refuses_every_write_goes_on_answering_from_memory() -> None:
    class Refusing(Engine):
        refuses = False

        def check_writable(self) -> None:
            if self.refuses:
                raise UnavailableError("the stored data are being moved")

    engine = Refusing()
    store = WindowedStore(engine, HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    rows = {(gauge("worker-0"), BEGIN - SECOND): 1.0}
    store.append_all((batch_of(rows),), FOREVER)
    engine.refuses = True
    with pytest.raises(UnavailableError):
        store.append_all((batch_of({(gauge("worker-0"), BEGIN): 2.0}),), FOREVER)
    engine.reads = 0
    assert read_all(store, [gauge("worker-0")], TimeRange(BEGIN - HOUR, BEGIN + HOUR)) == rows
    assert engine.reads == 0


@pytest.mark.parametrize("seed", range(6))
def test_reading_in_parts_equals_reading_at_once(seed: int) -> None:
    generator = random.Random(seed)
    window = Window(HOUR, 2**24)
    keys = SeriesKeys(np.arange(6, dtype=np.uint64), np.arange(10, 16, dtype=np.uint64))
    window.adopt(keys, SampleColumns.make_empty(), 0)
    for _ in range(4):
        count = generator.choice([1, 30, 300])
        index = np.array([generator.randrange(5) for _ in range(count)], np.uint32)
        time = np.array([generator.randrange(1000) for _ in range(count)])
        window.write_all([SampleBatch([], index, time, time / 8, keys)], 1000)
    span = TimeRange(generator.randrange(500), generator.randrange(500, 1001))
    whole = window.read(keys, span)
    assert whole is not None
    parts, place = [SampleColumns.make_empty()], {"first": 0, "first_ms": span.start_ms}
    while True:
        most = generator.choice([1, 7, 64, 100])
        part = window.read(keys, span, **place, most=most)
        assert part is not None
        parts.append(part)
        assert len(part) <= most
        if len(part) < most:
            break
        place = {"first": int(part.index[-1]), "first_ms": int(part.time[-1]) + 1}
    joined = SampleColumns.concatenate(parts)
    for name in ("index", "time", "value"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))


@pytest.mark.parametrize("bound", [2**30, 12_000])
@pytest.mark.parametrize("seed", range(12))
def test_a_slow_reader_gets_every_sample_once_while_the_window_changes(
    seed: int, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples arrive in order and late, the window expires, shrinks and loses series, and the engine has all data."""
    monkeypatch.setattr(window_store, "BLOCK_ROWS", 7)
    monkeypatch.setattr(window_store, "_TOGETHER", 3)
    generator = random.Random(seed)
    clock, engine = HandClock(BEGIN), MemoryStore()
    store = WindowedStore(engine, clock, length_ms=10 * MINUTE, bound=bound)
    series = [gauge(f"worker-{number}") for number in range(8)]

    def write(back_ms: int) -> dict[tuple[Series, int], float]:
        rows = {
            (one, clock.now - generator.randrange(back_ms)): generator.randrange(100) / 4
            for one in generator.sample(series, 5)
            for _ in range(6)
        }
        # Each stored sample keeps its value, so that every reader must find this value.
        own = {key: value for key, value in rows.items() if key not in written}
        store.append_all((batch_of(own),), FOREVER)
        return own

    written: dict[tuple[Series, int], float] = {}
    for _ in range(10):
        clock.now += 20 * SECOND
        written.update(write(3 * MINUTE))
    before = dict(written)
    span = TimeRange(BEGIN - generator.choice([MINUTE, 10 * MINUTE]), clock.now + HOUR)
    found = list[tuple[Series, int, float]]()
    for block in store.read(SeriesKeys.from_series(series), span, ReadBudget()):
        rows = zip(block.index.tolist(), block.time.tolist(), block.value.tolist(), strict=True)
        found += [(series[index], time, value) for index, time, value in rows]
        match generator.randrange(5):
            case 0:
                written.update(write(3 * MINUTE))
            case 1:
                clock.now += generator.choice([SECOND, 2 * MINUTE])
                written.update(write(MINUTE))
            case 2:
                store.window.sweep(clock.now)
            case 3:
                store.window.drop(SeriesKeys.from_series(generator.sample(series, 1)))
            case _:
                pass
    places = [(series.index(one), time) for one, time, _ in found]
    assert places == sorted(set(places))
    read_back = {(one, time): value for one, time, value in found}
    assert read_back.items() >= {key: value for key, value in before.items() if key[1] >= span.start_ms}.items()
    assert written.items() >= read_back.items()


def test_slow_readers_hold_a_block_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing(MemoryStore):
        """Engine that keeps no data: samples found later were in memory."""

        def append_all(self, batches, retention=FOREVER) -> None:
            """Discard the batches."""

    clock = HandClock(BEGIN)
    store = WindowedStore(Nothing(), clock, length_ms=2 * HOUR, bound=2**28)
    series = [gauge(f"worker-{number}") for number in range(8)]
    each = 250_000
    index = np.repeat(np.arange(8, dtype=np.uint32), each)
    time = np.tile(np.arange(each) * 4 + BEGIN - 4 * each, 8)
    store.append_all([SampleBatch(series, index, time, time / 8, SeriesKeys.from_series(series))], FOREVER)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        keys, span = SeriesKeys.from_series(series), TimeRange(BEGIN - 2 * HOUR, BEGIN)
        readers = [store.read(keys, span, ReadBudget()) for _ in range(4)]
        rows = sum(sum(map(len, together)) for together in zip(*readers, strict=True))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 4 * 8 * each
    # The samples take 160 MB as columns.
    assert peak - before < 4 * 4 * 20 * window_store.BLOCK_ROWS


def test_a_reader_that_takes_longer_than_its_budget_is_stopped() -> None:
    store = WindowedStore(MemoryStore(), HandClock(BEGIN), length_ms=HOUR, bound=2**30)
    store.append_all((batch_of({(gauge("worker-0"), BEGIN): 1.0}),), FOREVER)
    with pytest.raises(QueryTimeoutError):
        list(store.read(SeriesKeys.from_series([gauge("worker-0")]), TimeRange(0, BEGIN + 1), ReadBudget(seconds=0.0)))


class Interrupted(MemoryStore):
    """Engine that runs a function before each append."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None

    def append_all(self, batches, retention=FOREVER) -> None:
        self.meanwhile()
        super().append_all(batches, retention)


def test_samples_that_come_in_while_their_hour_is_rolled_up_invalidate_it() -> None:
    clock = HandClock(BEGIN + 30 * MINUTE)
    engine = Interrupted()
    store = WindowedStore(engine, clock, length_ms=2 * HOUR, bound=2**30)
    one, hour = gauge("worker-0"), TimeRange(BEGIN, BEGIN + HOUR)
    store.append_all((batch_of({(one, BEGIN + MINUTE): 1.0}),), FOREVER)
    store.roll_up(BEGIN)
    taken = []

    def roll_up_and_ask() -> None:
        clock.now = BEGIN + 2 * HOUR
        store.roll_up(hour.end_ms)
        taken.append(store.get_revision([one.job_key]))
        assert store.find_rolled_up_ranges([one.job_key], hour) == [hour]

    engine.meanwhile = roll_up_and_ask
    store.append_all((batch_of({(one, BEGIN + 2 * MINUTE): 2.0}),), FOREVER)
    assert store.get_revision([one.job_key]) not in taken
    assert store.find_rolled_up_ranges([one.job_key], hour) == engine.find_rolled_up_ranges([one.job_key], hour) == []


def test_hours_that_were_rolled_up_before_the_clock_was_set_back_are_found_after_a_restart() -> None:
    engine, one = MemoryStore(), gauge("worker-0")
    WindowedStore(engine, HandClock(BEGIN + 5 * HOUR), length_ms=HOUR, bound=2**20).roll_up(BEGIN + 5 * HOUR)
    store = WindowedStore(engine, HandClock(BEGIN + HOUR), length_ms=2 * HOUR, bound=2**20)
    store.append_all((batch_of({(one, BEGIN + HOUR): 1.0}),), FOREVER)
    before = store.get_revision([one.job_key])
    store.append_all((batch_of({(one, BEGIN + 2 * HOUR): 2.0}),), FOREVER)
    assert store.get_revision([one.job_key]) != before


def test_the_state_of_the_roll_ups_of_many_jobs_takes_bounded_memory() -> None:
    cache = Cache(50_000)
    windowed = WindowedStore(MemoryStore(), HandClock(BEGIN), length_ms=HOUR, bound=2**20, cache=cache)
    for first in range(0, 1_000, 50):
        jobs, span = list(range(first, first + 100)), TimeRange(0, (first + 1) * HOUR)
        assert windowed.find_rolled_up_ranges(jobs, span) == windowed.find_rolled_up_ranges(jobs, span)
        assert cache.statistics.bytes <= 50_000
    assert cache.statistics.entries


def test_lists_of_keys_that_never_come_again_take_no_memory() -> None:
    window = Window(HOUR, 2**20)
    rows = list[weakref.ref[np.ndarray]]()
    for _ in range(50):
        keys = SeriesKeys(np.arange(10, dtype=np.uint64), np.arange(10, dtype=np.uint64))
        assert window.find_missing(keys).all()
        rows.append(weakref.ref(keys.derived[window].rows))
    assert [one() is not None for one in rows] == [False] * 49 + [True], "those of the last list"
