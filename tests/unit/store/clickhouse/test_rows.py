"""Tests of rows on their way to the engine: in order, each sample once."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.store.rows import GROUPS, LONG, SHORT, days_of, in_table, rows_of

from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, TimeRange
from jobmeter.store.clickhouse.pending import Pending, merge_streams
from jobmeter.store.clickhouse.rows import JournalBlock, SampleRuns, join_runs, split_by_days, split_rows
from jobmeter.store.clickhouse.sort_dedupe import sort_dedupe

CLOSE = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12), st.integers(0, 9).map(float)), min_size=1)
CLOSE_GROUPS = st.lists(st.tuples(CLOSE, st.sampled_from([SHORT, LONG])), min_size=1, max_size=4)


def last_written(groups):
    day_columns = {}
    for samples, retention in groups:
        for number, time, value in samples:
            day_columns[number // 3, number, time] = (value, days_of(retention))
    return day_columns


def sharing(group):
    """Return the rows such that runs of the same series share the same list object."""
    lists: dict[tuple[bytes, bytes], SeriesKeys] = {}
    return [
        replace(rows, keys=lists.setdefault((rows.job.tobytes(), rows.series.tobytes()), rows.keys)) for rows in group
    ]


@given(st.one_of(GROUPS, CLOSE_GROUPS))
def test_sort_dedupe_leaves_the_last_of_each_sample(groups):
    table = sort_dedupe(sharing([rows_of(samples, retention) for samples, retention in groups]))
    expected = [(*key, *day_columns) for key, day_columns in sorted(last_written(groups).items())]
    assert in_table(table) == expected


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_the_same_series_again_and_again_are_put_in_order_by_counting(times, longer):
    """Scrapers send the same list in each request, usually in order, sometimes late or repeated."""
    groups = []
    for turn, (moments, kept_longer) in enumerate(zip(times, longer, strict=False)):
        samples = [(number, 20 * turn + at, float(turn)) for number, at in zip((6, 2, 4), moments, strict=True)]
        groups.append((samples, LONG if kept_longer else SHORT))
    table = sort_dedupe(sharing([rows_of(samples, retention) for samples, retention in groups]))
    assert in_table(table) == [(*key, *day_columns) for key, day_columns in sorted(last_written(groups).items())]


def test_long_runs_are_put_in_order_as_wholes():
    first = [(number, at, float(number * at)) for number in (5, 1, 3) for at in range(0, 1000, 2)]
    second = [(number, at, 7.0) for number in (3, 5) for at in range(1000, 1500)]
    table = sort_dedupe([rows_of(first, SHORT), rows_of(second, LONG)])
    assert in_table(table) == [
        (*key, *day_columns) for key, day_columns in sorted(last_written([(first, SHORT), (second, LONG)]).items())
    ]


@pytest.mark.parametrize("jobs", [3, 2**16 + 2])
def test_series_are_ordered_by_job_first_however_many_jobs_there_are(jobs):
    random = np.random.default_rng(jobs)
    count = 70_000
    job, series = random.permutation(np.arange(count) % jobs), random.permutation(count)
    keys = SeriesKeys(job.astype(np.uint64) << np.uint64(40), series.astype(np.uint64))
    ones, time = np.ones(count, np.int64), np.arange(count)
    table = sort_dedupe([SampleRuns(keys, ones, time, time / 4, SHORT)])
    order = np.lexsort((keys.series, keys.job))
    assert table.time.tolist() == order.tolist()
    assert table.series.tolist() == keys.series[order].tolist()


def test_many_rows_against_the_order_of_time_are_sorted():
    """Sorting that many rows takes a separate buffer, which must live until the end."""
    count = 200_000
    keys = SeriesKeys(np.array([1], np.uint64), np.array([4], np.uint64))
    time = np.arange(count, 0, -1, dtype=np.int64)
    group = [SampleRuns(keys, np.array([count]), time, time / 4, day_columns) for day_columns in (SHORT, LONG)]
    group.append(SampleRuns(keys, np.array([2]), np.array([7, 7]), np.array([0.5, 0.75]), SHORT))
    table = sort_dedupe(group)
    assert table.time.tolist() == list(range(1, count + 1))
    assert [at for at, value in enumerate(table.value.tolist(), 1) if value != at / 4] == [7]
    assert table.value[6] == 0.75
    assert set(np.flatnonzero(table.days[0] == SHORT.raw_days).tolist()) == {6}


def test_a_batch_becomes_runs():
    series = [Series("gpu.power", job="a"), Series("gpu.power", job="b")]
    index = np.array([1, 1, 0, 1], np.uint32)
    time = np.array([3 * HOUR, 5 * HOUR + 1, 4 * HOUR, 3 * HOUR + 7], np.int64)
    rows = SampleRuns.from_batch(SampleBatch(series, index, time, np.arange(4.0)), None, LONG)
    a, b = (one.job_key for one in series)
    assert rows.count.tolist() == [2, 1, 1]
    assert rows.job.tolist() == [b, a, b]
    assert join_runs([rows]).series.tolist() == [series[at].id for at in index]
    assert rows.find_late_hours(3 * HOUR) == set()
    assert rows.find_late_hours(5 * HOUR) == {(b, 3 * HOUR), (a, 4 * HOUR)}
    assert rows.find_late_hours(9 * HOUR) == {(b, 3 * HOUR), (a, 4 * HOUR), (b, 5 * HOUR)}


@given(
    st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=90), min_size=1, max_size=5), *(st.integers(1, 90),) * 2
)
def test_parts_hold_every_row_once_and_few_days(groups, rows, most):
    serial = count()
    group = [dated(days, serial) for days in groups]
    parts = [join_runs(part) for part in split_by_days(group, rows, most)]
    whole = join_runs(group)
    found = np.concatenate([part.value for part in parts])
    assert sorted(found.tolist()) == whole.value.tolist()
    places = list(zip(whole.series.tolist(), whole.time.tolist(), strict=True))
    by_value = dict(zip(whole.value.tolist(), places, strict=True))
    for part in parts:
        days = part.time // DAY
        assert len(np.unique(days)) <= most
        assert len(part) <= rows or len(np.unique(days)) == 1
        assert [by_value[value] for value in part.value.tolist()] == list(
            zip(part.series.tolist(), part.time.tolist(), strict=True)
        )
        for day in np.unique(days):
            assert (np.diff(part.value[days == day]) > 0).all()
    # No day is in two parts.
    assert sum(len(np.unique(part.time // DAY)) for part in parts) == len(np.unique(whole.time // DAY))


@given(GROUPS, st.integers(1, 40))
def test_portions_are_the_group_in_its_order(groups, rows):
    group = [rows_of(samples, retention) for samples, retention in groups]
    parts = list(split_rows(group, rows))
    assert [one for part in parts for one in part] == group
    assert all(sum(map(len, part[:-1])) < rows for part in parts)


def dated(days, serial):
    """Return rows of two series, one row on each of some days; values number the rows in order."""
    time = np.array(days, np.int64) * DAY + np.arange(len(days))
    counts = np.array([size for size in (len(days) // 2, len(days) - len(days) // 2) if size])
    keys = SeriesKeys(np.ones(len(counts), np.uint64), np.arange(len(counts), dtype=np.uint64))
    return SampleRuns(keys, counts, time, np.array([next(serial) for _ in days], np.float64), LONG)


KEYS = SeriesKeys(np.array([1, 0, 1, 0], np.uint64), np.array([4, 1, 3, 2], np.uint64))


@given(CLOSE_GROUPS, st.integers(0, 13), st.integers(0, 13), st.integers(1, 20))
def test_what_waits_is_found(groups, low, high, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobmeter.store.clickhouse.pending.PIECE_ROWS", piece)
        check_what_waits(groups, low, high)


def check_what_waits(groups, low, high):
    span = TimeRange(min(low, high), max(low, high))
    pending = Pending([JournalBlock(rows_of(samples, retention)) for samples, retention in groups])
    day_columns = {(number, time): value for (_, number, time), (value, _) in last_written(groups).items()}
    expected = [
        (index, time, day_columns[number, time])
        for index, number in enumerate(KEYS.series.tolist())
        for time in range(span.start_ms, span.end_ms)
        if (number, time) in day_columns
    ]
    assert triples(pending.select_samples(KEYS, span)) == expected
    assert [row for piece in pending.split(KEYS, span) for row in triples(piece)] == expected
    expected = triples(pending.select_samples(KEYS, TimeRange(0, high)))
    assert triples(pending.find_previous(KEYS, high)) == list({row[0]: row for row in expected}.values())
    found: dict[int, tuple[int, int]] = {}
    for job, first, last in pending.list_times([0, 5]):
        written = found.get(job, (first, last))
        found[job] = min(first, written[0]), max(last, written[1])
    times = [time for number, time in day_columns if number // 3 == 0]
    assert found == ({0: (min(times), max(times))} if times else {})


@given(
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 9)), st.just(1.0)),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 9)), st.just(2.0)),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_what_waits_is_laid_over_what_is_read(below, over, size, piece):
    def blocks(samples, size):
        rows = sorted((*key, value) for key, value in samples.items())
        return [columns(rows[at : at + size]) for at in range(0, len(rows), size)]

    found = [
        row for block in merge_streams(iter(blocks(below, size)), iter(blocks(over, piece))) for row in triples(block)
    ]
    assert found == sorted((*key, value) for key, value in {**below, **over}.items())


def columns(rows):
    from jobmeter.model.batch import SampleColumns

    index, time, value = zip(*rows, strict=True) if rows else ((), (), ())
    return SampleColumns(np.array(index, np.uint32), np.array(time, np.int64), np.array(value, np.float64))


def triples(found):
    return list(zip(found.index.tolist(), found.time.tolist(), found.value.tolist(), strict=True))


def test_what_waits_is_given_in_pieces_of_bounded_size():
    samples = [(number, at, float(at)) for number in KEYS.series.tolist() for at in range(40_000)]
    pieces = list(Pending([JournalBlock(rows_of(samples, SHORT))]).split(KEYS, TimeRange(0, 40_000)))
    assert [len(piece) for piece in pieces] == [40_000] * 4
    assert [int(piece.index[0]) for piece in pieces] == [0, 1, 2, 3]


def test_what_waits_of_other_series_makes_no_more_pieces():
    samples = [(number, 1, 1.0) for number in KEYS.series.tolist()]
    others = [(99, at, 1.0) for at in range(100_000)]
    sections = [JournalBlock(rows_of(rows, SHORT)) for rows in (samples + others, others)]
    assert [len(piece) for piece in Pending(sections).split(KEYS, TimeRange(0, 100_000))] == [4]
