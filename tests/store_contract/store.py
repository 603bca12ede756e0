"""Store contract as tests: inherit ``StoreTests`` and provide a ``store`` fixture.

Tests can share a store without emptying it: every test writes its own jobs at its own times. Values are multiples of a
quarter, so that sums are exact and can be compared exactly.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.series import NO_JOB, SPECIAL, NamePart, Series
from jobmeter.model.special import make_special
from jobmeter.model.time import DAY, HOUR, MINUTE, TimeRange
from jobmeter.store.base import NEWEST, ReadBudget, SeriesSelector, Store, Tier
from tests.store_contract.logs import LogTests
from tests.store_contract.samples import BUDGET, FOREVER, Samples, batch_of, brute_buckets, read_all, stored_buckets
from tests.store_contract.slot import Slot
from tests.store_contract.spans import SpanTests
from tests.store_contract.system_logs import SystemLogTests


class StoreTests(LogTests, SystemLogTests, SpanTests, ABC):
    """Contract tests of every store."""

    @pytest.fixture
    @abstractmethod
    def store(self) -> Store:
        """Open a store, which may contain rows of other tests."""

    @pytest.fixture
    def slot(self) -> Slot:
        """Return a job and a time that only this test uses."""
        return Slot()

    def test_gives_back_what_was_appended(self, store: Store, slot: Slot) -> None:
        one, two = slot.gauge("worker-0"), slot.gauge("worker-1")
        rows = {(one, slot.start + 15_000): 1.25, (two, slot.start): 2.5, (one, slot.start): 0.25}
        store.append_all((batch_of(rows),), FOREVER)
        assert read_all(store, [one, two], slot.span) == rows

    def test_an_empty_batch_has_no_effect(self, store: Store, slot: Slot) -> None:
        store.append_all((batch_of({}),), FOREVER)
        assert read_all(store, [slot.gauge()], slot.span) == {}

    def test_blocks_follow_the_order_of_the_keys(self, store: Store, slot: Slot) -> None:
        series = [slot.gauge(f"worker-{number}") for number in range(20)]
        rows = {(one, slot.start + at * 1000): float(at) for one in series for at in range(50)}
        store.append_all((batch_of(rows),), FOREVER)
        for order in (series, series[::-1], sorted(series, key=lambda one: one.id)):
            blocks = list(store.read(SeriesKeys.from_series(order), slot.span, BUDGET))
            index = np.concatenate([block.index for block in blocks]).tolist()
            time = np.concatenate([block.time for block in blocks]).tolist()
            assert list(zip(index, time, strict=True)) == [
                (position, slot.start + at * 1000) for position in range(20) for at in range(50)
            ]

    def test_a_range_holds_its_start_and_not_its_end(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        store.append_all((batch_of({(one, slot.start + at): float(at) for at in range(10)}),), FOREVER)
        read = read_all(store, [one], TimeRange(slot.start + 2, slot.start + 5))
        assert [time - slot.start for _, time in read] == [2, 3, 4]
        assert read_all(store, [one], TimeRange(slot.start, slot.start)) == {}
        assert read_all(store, [slot.gauge("worker-9")], slot.span) == {}
        assert read_all(store, [], slot.span) == {}

    def test_the_last_write_wins_inside_a_batch(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        values = np.arange(1000, dtype=np.float64)
        times = slot.start + (np.arange(1000) % 7) * 1000
        store.append_all((SampleBatch([one], np.zeros(1000, np.uint32), times.astype(np.int64), values),), FOREVER)
        expected = {(one, int(time)): value for time, value in zip(times, values.tolist(), strict=True)}
        assert read_all(store, [one], slot.span) == expected

    def test_new_series_of_several_batches_together_are_all_stored(self, store: Store, slot: Slot) -> None:
        one, two, three = (slot.gauge(f"worker-{n}") for n in range(3))
        rows = [
            {(one, slot.start): 1.0, (two, slot.start): 2.0},
            {(two, slot.start): 3.0, (two, slot.start + 1000): 4.0, (three, slot.start): 5.0},
            {(one, slot.start + 1000): 6.0},
        ]
        store.append_all([batch_of(part) for part in rows], FOREVER)
        expected = {key: value for part in rows for key, value in part.items()}
        assert read_all(store, [one, two, three], slot.span) == expected
        assert {series.replica for series in store.find(SeriesSelector(jobs=(one.job_key,)))} >= {
            one.replica,
            three.replica,
        }

    def test_no_series_that_has_samples_is_called_unwritten(self, store: Store, slot: Slot) -> None:
        series = [slot.gauge(f"worker-{n}") for n in range(4)]
        for count in range(4):
            unwritten = store.lacks_descriptor(SeriesKeys.from_series(series))
            assert not unwritten[:count].any()
            store.append_all((batch_of({(series[count], slot.start): 1.0}),), FOREVER)
        store.delete_job(series[0].job_key)
        store.append_all((batch_of({(series[1], slot.start): 2.0}),), FOREVER)
        assert not store.lacks_descriptor(SeriesKeys.from_series(series))[1]
        assert read_all(store, series, slot.span) == {(series[1], slot.start): 2.0}

    def test_live_series_come_page_by_page_those_of_the_last_day_first(self, store: Store, slot: Slot) -> None:
        old, new = ([slot.gauge(f"{day}-{n}") for n in range(5)] for day in ("old", "new"))
        store.append_all((batch_of({(one, slot.start): 1.0 for one in old}),), FOREVER)
        store.append_all((batch_of({(one, slot.start + 2 * DAY): 1.0 for one in new}),), FOREVER)

        def live(since_ms: int, most: int) -> list[int]:
            found, place = list[int](), NEWEST
            while True:
                page = store.list_live_series(since_ms, most, place)
                assert len(page.keys) <= most
                found += page.keys.series.tolist()
                if page.following is None:
                    return found
                place = page.following

        places = [[live(slot.start, 20).index(one.id) for one in group] for group in (new, old)]
        assert max(places[0]) < min(places[1])
        assert {one.id for one in new} <= set(live(slot.start + 2 * DAY, 1_000_000))

    def test_the_last_write_wins_in_any_grouping(self, store: Store, slot: Slot) -> None:
        one, two = slot.gauge("worker-0"), slot.gauge("worker-1")
        first = {(series, slot.start + at * 1000): float(at) for series in (one, two) for at in range(100)}
        again = {key: value + 0.5 for key, value in first.items()}
        store.append_all((batch_of(first),), FOREVER)
        for part in _split(again, 7):
            store.append_all((batch_of(part),), FOREVER)
        assert read_all(store, [one, two], slot.span) == again
        store.append_all((batch_of(first),), FOREVER)
        assert read_all(store, [two, one], slot.span) == first

    def test_numbers_come_back_bit_for_bit(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        values = [0.1, 1e-300, 1.7976931348623157e308, -0.0, 4.35, 2.0**53 + 2, 1 / 3]
        store.append_all((batch_of({(one, slot.start + at): value for at, value in enumerate(values)}),), FOREVER)
        read = list(read_all(store, [one], slot.span).values())
        assert np.array(read).tobytes() == np.array(values).tobytes()

    def test_an_append_may_span_more_than_a_year(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        start = slot.start - 500 * DAY
        rows = {(one, start + day * DAY + hour * HOUR): day + hour / 4 for day in range(400) for hour in (0, 7)}
        store.append_all((batch_of(dict(reversed(rows.items()))),), FOREVER)
        assert read_all(store, [one], TimeRange(start, slot.start)) == rows
        store.delete_job(slot.key)  # other tests would wait for the roll-up of these hours

    def test_series_are_found_by_each_of_their_names(self, store: Store, slot: Slot) -> None:
        mine = [
            Series("gpu.power", job=slot.job, replica="worker-0", node=f"n-{slot.number}", device="gpu0", attempt=2),
            Series(
                "disk.read", job=slot.job, replica="worker-0", labels=(("disk", 'a "b" \\'), ("part", "é\U0001f600"))
            ),
        ]
        other = Series("gpu.power", job=slot.job, project=f"p-{slot.number}", cluster="west", node=f"n-{slot.number}")
        node = Series("node.load1", node=f"n-{slot.number}", cluster="west")
        store.append_all((batch_of({(one, slot.start): 1.0 for one in [*mine, other, node]}),), FOREVER)

        def found(**parts: object) -> set[Series]:
            return set(store.find(SeriesSelector(**parts)))  # type: ignore[arg-type]

        assert found(jobs=(slot.key,)) == set(mine)
        assert found(jobs=(slot.key, other.job_key)) == {*mine, other}
        assert found(jobs=(slot.key,), metrics=frozenset({"disk.read", "cpu.time"})) == {mine[1]}
        assert found(nodes=(("", f"n-{slot.number}"),)) == {mine[0]}
        assert found(nodes=(("west", f"n-{slot.number}"),), jobs=(NO_JOB,)) == {node}
        assert found(nodes=(("west", f"n-{slot.number}"),)) == {other, node}
        assert found(projects=frozenset({f"p-{slot.number}"})) == {other}
        assert found(projects=frozenset({"default"}), nodes=(("west", f"n-{slot.number}"),)) == {node}
        assert found(jobs=(slot.key,), projects=frozenset()) == set()
        assert found(jobs=()) == set()

    def test_series_of_special_values_are_found_only_by_their_metric(self, store: Store, slot: Slot) -> None:
        plain = slot.gauge("worker-0")
        special = make_special(plain)
        store.append_all((batch_of({(plain, slot.start): 1.0, (special, slot.start): 2.0}),), FOREVER)
        own, names = SeriesSelector(jobs=(slot.key,)), frozenset({special.metric})
        assert store.find(own) == [plain]
        assert set(store.find(replace(own, special=True))) == {plain, special}
        assert store.find(replace(own, metrics=names)) == [special]
        assert store.list_names(own, NamePart.METRIC) == [plain.metric]
        every = replace(own, special=True)
        assert store.list_names(every, NamePart.METRIC, SPECIAL) == [special.metric]

    def test_names_are_listed_by_part(self, store: Store, slot: Slot) -> None:
        labels = (("disk", "sda"), ("part", "é"))
        mine = Series("disk.read", job=slot.job, replica="worker-0", labels=labels)
        other = Series("gpu.power", f"p-{slot.number}", "west", f"n-{slot.number}", "gpu0", slot.job)
        store.append_all(
            (batch_of({(one, slot.start): 1.0 for one in (mine, slot.gauge("worker-1"), other)}),), FOREVER
        )

        def names(part: NamePart, prefix: str = "", limit: int = 10) -> list[str]:
            return store.list_names(SeriesSelector(jobs=(slot.key, other.job_key), limit=limit), part, prefix)

        assert names(NamePart.METRIC) == ["disk.read", "gpu.power"]
        assert names(NamePart.METRIC, "gpu") == ["gpu.power"]
        assert names(NamePart.METRIC, limit=1) == ["disk.read"]
        assert names(NamePart.METRIC, "GPU") == []
        assert names(NamePart.PROJECT) == ["default", f"p-{slot.number}"]
        assert names(NamePart.CLUSTER) == ["west"]
        assert names(NamePart.NODE) == [f"n-{slot.number}"]
        assert names(NamePart.DEVICE) == ["gpu0"]
        assert names(NamePart.JOB) == [slot.job]
        assert names(NamePart.REPLICA) == ["worker-0", "worker-1"]
        assert names(NamePart.LABEL) == ["disk", "part"]
        assert names(NamePart.LABEL_VALUE) == ["sda", "é"]
        assert store.list_names(SeriesSelector(projects=frozenset({f"p-{slot.number}"})), NamePart.METRIC) == [
            "gpu.power"
        ]
        assert store.list_names(SeriesSelector(projects=frozenset()), NamePart.METRIC) == []

    def test_series_that_were_last_written_before_a_day_are_left_out(self, store: Store, slot: Slot) -> None:
        old, new = slot.gauge("worker-0"), slot.gauge("worker-1")
        store.append_all((batch_of({(old, slot.start - 5 * DAY): 1.0, (new, slot.start - 5 * DAY): 1.0}),), FOREVER)
        store.append_all((batch_of({(new, slot.start + HOUR): 1.0}),), FOREVER)
        assert set(store.find(SeriesSelector(jobs=(slot.key,), since=slot.start - 6 * DAY))) == {old, new}
        assert store.find(SeriesSelector(jobs=(slot.key,), since=slot.start)) == [new]

    def test_too_many_series_are_refused(self, store: Store, slot: Slot) -> None:
        store.append_all((batch_of({(slot.gauge(f"worker-{at}"), slot.start): 1.0 for at in range(5)}),), FOREVER)
        assert len(store.find(SeriesSelector(jobs=(slot.key,), limit=5))) == 5
        with pytest.raises(LimitExceededError):
            store.find(SeriesSelector(jobs=(slot.key,), limit=4))

    def test_long_lists_of_jobs_and_metrics_are_legal(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        store.append_all((batch_of({(one, slot.start): 1.0}),), FOREVER)
        names = frozenset({"gpu.power", *(f"app.metric{number}" for number in range(1000))})
        assert store.find(SeriesSelector(jobs=(*range(1, 9000), slot.key), metrics=names)) == [one]

    def test_more_keys_than_one_question_takes(self, store: Store, slot: Slot) -> None:
        series = [slot.gauge(f"worker-{number}") for number in range(9000)]
        rows = {(one, slot.start): float(number) for number, one in enumerate(series)}
        store.append_all((batch_of(rows),), FOREVER)
        assert read_all(store, series, slot.span) == rows
        previous = store.read_previous(SeriesKeys.from_series(series), slot.start + 1, BUDGET)
        assert previous.value.tolist() == list(rows.values())

    def test_a_read_past_its_rows_is_refused(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        store.append_all((batch_of({(one, slot.start + at): 1.0 for at in range(100)}),), FOREVER)
        assert len(read_all(store, [one], slot.span, ReadBudget(rows=100))) == 100
        with pytest.raises(LimitExceededError):
            read_all(store, [one], slot.span, ReadBudget(rows=99))

    def test_a_read_may_be_left_early(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        times = slot.start + np.arange(300_000, dtype=np.int64)
        store.append_all((SampleBatch([one], np.zeros(len(times), np.uint32), times, np.ones(len(times))),), FOREVER)
        for _ in range(6):
            blocks = store.read(SeriesKeys.from_series([one]), slot.span, BUDGET)
            assert len(next(iter(blocks)))
            blocks.close()
        assert sum(map(len, store.read(SeriesKeys.from_series([one]), slot.span, BUDGET))) == len(times)

    def test_the_sample_before_a_time(self, store: Store, slot: Slot) -> None:
        near, far, none = slot.gauge("worker-0"), slot.gauge("worker-1"), slot.gauge("worker-2")
        at = slot.start + 40 * HOUR
        rows = {
            (near, at - 5): 1.0,
            (near, at): 2.0,
            (far, slot.start): 3.0,
            (far, slot.start + 1): 4.0,
            (none, at): 5.0,
        }
        store.append_all((batch_of(rows),), FOREVER)
        store.append_all((batch_of({(near, at - 5): 1.5}),), FOREVER)
        found = store.read_previous(SeriesKeys.from_series([none, far, near]), at, BUDGET)
        assert _rows(found) == [(1, slot.start + 1, 4.0), (2, at - 5, 1.5)]
        assert not len(store.read_previous(SeriesKeys.from_series([near, far]), slot.start, BUDGET))

    def test_first_and_last_times_of_jobs(self, store: Store, slot: Slot) -> None:
        one, two = slot.gauge("worker-0"), slot.counter("worker-1")
        store.append_all((batch_of({(one, slot.start + 30 * HOUR): 1.0, (two, slot.start + 10): 1.0}),), FOREVER)
        assert store.read_last_times([slot.key, 12345]) == {slot.key: (slot.start + 10, slot.start + 30 * HOUR)}
        store.roll_up(slot.start + 20 * HOUR)
        store.append_all((batch_of({(one, slot.start + 5): 1.0}),), FOREVER)
        assert store.read_last_times([slot.key]) == {slot.key: (slot.start + 5, slot.start + 30 * HOUR)}
        store.roll_up(slot.start + 31 * HOUR)
        assert store.read_last_times([slot.key]) == {slot.key: (slot.start + 5, slot.start + 30 * HOUR)}
        assert store.read_last_times([]) == {}

    def test_hours_are_rolled_up_when_they_are_whole(self, store: Store, slot: Slot) -> None:
        one = slot.gauge()
        store.append_all((batch_of({(one, slot.start + minute * MINUTE): 1.0 for minute in range(200)}),), FOREVER)
        assert store.find_rolled_up_ranges([slot.key], slot.span) == []
        assert store.roll_up(slot.start + 3 * HOUR + 59 * MINUTE) >= 3
        assert store.find_rolled_up_ranges([slot.key], slot.span) == [TimeRange(slot.start, slot.start + 3 * HOUR)]
        inner = TimeRange(slot.start + 1, slot.start + 2 * HOUR + 1)
        assert store.find_rolled_up_ranges([slot.key], inner) == [TimeRange(slot.start + HOUR, slot.start + 2 * HOUR)]
        assert store.find_rolled_up_ranges([slot.key], TimeRange(slot.start + 1, slot.start + HOUR)) == []
        assert store.roll_up(slot.start + 3 * HOUR) == 0

    def test_a_late_sample_takes_an_hour_back_until_it_is_rolled_up_again(self, store: Store, slot: Slot) -> None:
        one, other = slot.gauge(), Slot()
        rows = {(one, slot.start + hour * HOUR): 1.0 for hour in range(5)}
        store.append_all((batch_of(rows),), FOREVER)
        store.roll_up(slot.start + 5 * HOUR)
        late = {(one, slot.start + 2 * HOUR + 5): 7.0}
        store.append_all((batch_of(late),), FOREVER)
        trusted = store.find_rolled_up_ranges([slot.key], slot.span)
        assert not any(part.intersect(TimeRange(slot.start + 2 * HOUR, slot.start + 3 * HOUR)) for part in trusted)
        assert store.find_rolled_up_ranges([other.key], slot.span) == [TimeRange(slot.start, slot.start + 5 * HOUR)]
        assert store.roll_up(slot.start + 5 * HOUR) >= 1
        assert store.find_rolled_up_ranges([slot.key], slot.span) == [TimeRange(slot.start, slot.start + 5 * HOUR)]
        self._check_buckets(store, slot.span, [one], {**rows, **late})

    def test_roll_ups_equal_those_made_by_hand(self, store: Store, slot: Slot) -> None:
        gauge, counter, lonely = slot.gauge(), slot.counter(), slot.counter("worker-1")
        generator = np.random.default_rng(slot.number)
        rows: Samples = {}
        for series in (gauge, counter):
            for at in generator.choice(6 * HOUR // 1000, 2000, replace=False).tolist():
                rows[series, slot.start + at * 1000] = int(generator.integers(0, 4000)) / 4
        rows[lonely, slot.start + 5] = 3.0
        rows[lonely, slot.start + 4 * HOUR] = 10.0
        store.append_all((batch_of(rows),), FOREVER)
        store.roll_up(slot.start + 6 * HOUR)
        self._check_buckets(store, slot.span, [lonely, gauge, counter], rows)

    def test_a_counter_grows_since_the_last_sample_before_the_bucket(self, store: Store, slot: Slot) -> None:
        one = slot.counter()
        rows = {(one, slot.start): 10.0, (one, slot.start + 30 * HOUR): 25.0, (one, slot.start + 30 * HOUR + 5000): 4.0}
        store.append_all((batch_of(rows),), FOREVER)
        store.roll_up(slot.start + 31 * HOUR)
        found = stored_buckets(store, [one], slot.span, Tier.HOUR)
        assert [(row.increase, row.elapsed) for row in found.values()] == [(0.0, 0), (19.0, 30 * HOUR + 5000)]

    def test_a_late_sample_changes_the_growth_of_the_next_hour_that_has_samples(self, store: Store, slot: Slot) -> None:
        one = slot.counter()
        rows = {(one, slot.start): 10.0, (one, slot.start + 30 * HOUR): 25.0}
        store.append_all((batch_of(rows),), FOREVER)
        store.roll_up(slot.start + 31 * HOUR)
        late = {(one, slot.start + 2 * HOUR): 20.0}
        store.append_all((batch_of(late),), FOREVER)
        self._check_trusted(store, slot, [one], {**rows, **late})
        store.roll_up(slot.start + 31 * HOUR)
        self._check_buckets(store, slot.span, [one], {**rows, **late})

    def test_data_far_older_than_the_roll_ups_is_rolled_up_too(self, store: Store, slot: Slot) -> None:
        store.roll_up(slot.start)
        one = slot.counter()
        old = slot.start - 90 * DAY
        rows = {(one, old + hour * HOUR + 7): hour * 2.0 for hour in range(60)}
        store.append_all((batch_of(rows),), FOREVER)
        assert store.find_rolled_up_ranges([slot.key], TimeRange(old, old + 60 * HOUR)) == []
        store.roll_up(slot.start)
        assert store.find_rolled_up_ranges([slot.key], TimeRange(old, old + 60 * HOUR)) == [
            TimeRange(old, old + 60 * HOUR)
        ]
        self._check_buckets(store, TimeRange(old, old + 60 * HOUR), [one], rows)

    def test_a_deleted_job_is_gone_and_may_come_back(self, store: Store, slot: Slot) -> None:
        one, other = slot.gauge(), Slot()
        stored = {(other.gauge(), slot.start): 5.0}
        rows = {(one, slot.start + at * MINUTE): 1.0 for at in range(120)}
        store.append_all((batch_of({**rows, **stored}),), FOREVER)
        store.roll_up(slot.start + 2 * HOUR)
        store.delete_job(slot.key)
        assert read_all(store, [one], slot.span) == {}
        assert store.find(SeriesSelector(jobs=(slot.key,))) == []
        assert store.read_last_times([slot.key]) == {}
        assert stored_buckets(store, [one], slot.span, Tier.HOUR) == {}
        assert read_all(store, [other.gauge()], slot.span) == stored
        again = {(one, slot.start + 5): 2.0}
        store.append_all((batch_of(again),), FOREVER)
        assert read_all(store, [one], slot.span) == again
        assert store.find(SeriesSelector(jobs=(slot.key,))) == [one]

    def test_statistics_count_rows(self, store: Store, slot: Slot) -> None:
        before = store.read_statistics()
        store.append_all((batch_of({(slot.gauge(), slot.start + at): 1.0 for at in range(1000)}),), FOREVER)
        after = store.read_statistics()
        tables = {"samples", "minutes", "hours", "series", "logs", "spans", "outbox"}
        assert set(after.rows) == set(after.bytes) == tables
        assert after.rows["samples"] >= 1000
        assert after.rows["series"] >= 1
        assert after.journal.get("flushes") == before.journal.get("flushes")
        assert after.bytes["samples"] > 0

    def test_many_threads_append_and_read_concurrently(self, store: Store, slot: Slot) -> None:
        series = [slot.gauge(f"worker-{number}") for number in range(8)]
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for round_ in range(10):
                    rows = {(series[number], slot.start + round_ * 1000 + at): at / 4 for at in range(50)}
                    store.append_all((batch_of(rows),), FOREVER)
                    mine = read_all(store, [series[number]], slot.span)
                    assert len(mine) == 50 * (round_ + 1)
            except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(read_all(store, series, slot.span)) == 8 * 500

    def test_appends_during_a_roll_up_are_in_it_or_marked(self, store: Store, slot: Slot) -> None:
        one = slot.counter()
        rows: Samples = {}
        stop = threading.Event()

        def roll() -> None:
            hour = 1
            while not stop.is_set():
                store.roll_up(slot.start + min(hour, 6) * HOUR)
                hour += 1

        rollup_job = threading.Thread(target=roll)
        rollup_job.start()
        generator = np.random.default_rng(slot.number)
        try:
            for _ in range(40):
                part = {
                    (one, slot.start + int(at) * 1000): int(generator.integers(0, 100)) / 4
                    for at in generator.integers(0, 6 * 3600, 20)
                }
                store.append_all((batch_of(part),), FOREVER)
                rows.update(part)
        finally:
            stop.set()
            rollup_job.join()
        self._check_trusted(store, slot, [one], rows)
        store.roll_up(slot.start + 6 * HOUR)
        assert store.find_rolled_up_ranges([slot.key], slot.span) == [TimeRange(slot.start, slot.start + 6 * HOUR)]
        self._check_buckets(store, slot.span, [one], rows)

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_sequence_of_operations_equals_a_dictionary(self, store: Store, data: st.DataObject) -> None:
        slot = Slot()
        series = [slot.counter(), slot.counter("worker-1"), slot.gauge()]
        stored: Samples = {}
        samples = st.lists(
            st.tuples(st.sampled_from(series), st.integers(0, 5 * 360), st.integers(0, 40)), min_size=1, max_size=40
        )
        for _ in range(data.draw(st.integers(1, 6), "rounds")):
            batch = [((one, slot.start + at * 10_000), value / 4) for one, at, value in data.draw(samples, "samples")]
            store.append_all((batch_of(batch),), FOREVER)
            stored.update(batch)
            if data.draw(st.booleans(), "roll up"):
                store.roll_up(slot.start + data.draw(st.integers(0, 5), "hours") * HOUR)
            low, high = sorted(data.draw(st.tuples(st.integers(0, 5 * HOUR), st.integers(0, 5 * HOUR)), "range"))
            span = TimeRange(slot.start + low, slot.start + high)
            inside = {key: value for key, value in stored.items() if span.start_ms <= key[1] < span.end_ms}
            order = data.draw(st.permutations(series), "order")
            assert read_all(store, order, span) == inside
            self._check_previous(store, order, span.end_ms, stored)
            self._check_trusted(store, slot, order, stored)

    @staticmethod
    def _check_previous(store: Store, series: Sequence[Series], before: int, stored: Samples) -> None:
        expected = []
        for index, one in enumerate(series):
            times = [time for who, time in stored if who == one and time < before]
            if times:
                expected.append((index, max(times), stored[one, max(times)]))
        assert _rows(store.read_previous(SeriesKeys.from_series(series), before, BUDGET)) == expected

    @staticmethod
    def _check_trusted(store: Store, slot: Slot, series: Sequence[Series], stored: Samples) -> None:
        """Check that all hours that ``find_rolled_up_ranges`` lists are rolled up correctly."""
        for part in store.find_rolled_up_ranges([slot.key], slot.span):
            StoreTests._check_buckets(store, part, series, stored)

    @staticmethod
    def _check_buckets(store: Store, span: TimeRange, series: Sequence[Series], stored: Samples) -> None:
        for tier in Tier:
            assert stored_buckets(store, series, span, tier) == brute_buckets(stored, series, span, tier)


def _rows(columns: SampleColumns) -> list[tuple[int, int, float]]:
    return list(zip(columns.index.tolist(), columns.time.tolist(), columns.value.tolist(), strict=True))


def _split(rows: Samples, size: int) -> Iterable[Samples]:
    items = list(rows.items())
    return (dict(items[start : start + size]) for start in range(0, len(items), size))
