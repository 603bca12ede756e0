"""Tests of buckets of imported samples from memory: complete, or None."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.store.clickhouse.test_journal import Engine, open_journal
from tests.unit.store.rows import rows_of

from jobmeter.errors import UnavailableError
from jobmeter.kernel.sort_dedupe import OwnedRuns, make_buckets
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.store.clickhouse.imported import NOTHING
from jobmeter.store.clickhouse.rows import JournalBlock

TIMES = st.integers(0, 30).map(lambda number: number * 10 * MINUTE)
VALUES = st.integers(-8, 8).map(lambda value: value / 4)
SAMPLES = st.lists(st.tuples(st.integers(1, 4), TIMES, VALUES), min_size=1, max_size=12)
KEYS = st.lists(st.integers(1, 4), min_size=1, unique=True).map(
    lambda ids: SeriesKeys(np.array(ids, np.uint64) // 3, np.array(ids, np.uint64))
)
WHOLE = TimeRange(0, 6 * HOUR)


class Server:
    """Journal with its engine, and all samples that were stored."""

    def __init__(self, folder):
        self.engine = Engine()
        self.journal = open_journal(folder, self.engine)
        self.stored = {}
        self.waits = False

    def append(self, samples):
        known = {series for series, _ in self.stored}
        new = sorted({series for series, _, _ in samples} - known)
        if new:
            self.journal.begin(np.array(new, np.uint64))
        self.journal.append([rows_of(samples)])
        self.waits = True
        self.stored.update({(series, time): value for series, time, value in samples})

    def flush(self, error=None):
        self.engine.fails = error
        if error is None:
            self.journal.flush()
            self.waits = False
            return
        with pytest.raises(UnavailableError):
            self.journal.flush()

    def buckets(self, keys, span, step):
        found = self.journal.get_pending().read_buckets(keys, span, step)
        if found is None:
            return None
        statistics = ["count", "sum", "minimum", "maximum", "first", "first_time", "last", "last_time"]
        names = ["index", "time", *statistics, "increase", "elapsed"]
        return list(zip(*(getattr(found, name).tolist() for name in names), strict=True))

    def expected(self, keys, span, step):
        rows = []
        for index, series in enumerate(keys.series.tolist()):
            own = sorted((time, value) for (one, time), value in self.stored.items() if one == series)
            own = [(time, value) for time, value in own if span.start_ms <= time < span.end_ms]
            for start in sorted({time // step * step for time, _ in own}):
                inside = [(time, value) for time, value in own if time // step * step == start]
                times, values = zip(*inside, strict=True)
                ends = values[0], times[0], values[-1], times[-1]
                rows.append((index, start, len(values), sum(values), min(values), max(values), *ends, 0, 0))
        return rows


@given(
    st.lists(st.one_of(SAMPLES, st.sampled_from(["flush", "fail", "forget"])), max_size=12),
    KEYS,
    st.tuples(TIMES, TIMES).map(sorted),
    st.sampled_from([5 * MINUTE, 45 * MINUTE, HOUR, 2 * HOUR]),
)
@settings(max_examples=150, deadline=None)
def test_buckets_are_those_of_all_samples_or_none(steps, keys, ends, step):
    span = TimeRange(*ends)
    with TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            for one in steps:
                if isinstance(one, list):
                    server.append(one)
                elif one == "forget":
                    server.journal.forget()
                elif server.stored:
                    server.flush(UnavailableError("full") if one == "fail" and server.waits else None)
                for asked in (span, WHOLE):
                    found = server.buckets(keys, asked, step)
                    assert found is None or found == server.expected(keys, asked, step)
        finally:
            server.journal.die()


@pytest.fixture
def server(tmp_path):
    found = Server(tmp_path)
    yield found
    found.journal.die()


ALL = SeriesKeys(np.arange(1, 3, dtype=np.uint64) // 3, np.arange(1, 3, dtype=np.uint64))


def lines(*hours):
    times = [time for hour in hours for time in range(hour * HOUR, (hour + 1) * HOUR, MINUTE)]
    return [(series, time, time // MINUTE % 7 / 4) for series in (2, 1) for time in times]


@pytest.mark.parametrize("step", [HOUR, 3 * HOUR])
def test_an_import_of_several_flushes_is_answered_from_memory(server, step):
    server.append(lines(0, 1))
    server.flush()
    server.append(lines(2))
    assert server.buckets(ALL, WHOLE, step) == server.expected(ALL, WHOLE, step) != []
    server.flush()
    assert server.buckets(ALL, WHOLE, step) == server.expected(ALL, WHOLE, step)
    assert server.buckets(ALL, WHOLE, 5 * MINUTE) is None, "the engine has the samples within an hour"
    assert server.buckets(ALL, TimeRange(MINUTE, 6 * HOUR), HOUR) is None, "the span cuts an hour"


def test_samples_that_wait_have_buckets_of_any_length(server):
    server.append(lines(0, 1))
    span = TimeRange(7 * MINUTE, 90 * MINUTE)
    assert server.buckets(ALL, span, 5 * MINUTE) == server.expected(ALL, span, 5 * MINUTE) != []


def test_a_series_whose_samples_are_written_again_is_read_from_the_engine(server):
    server.append(lines(0))
    server.flush()
    server.append([(1, MINUTE, 7.0)])
    assert server.buckets(ALL, WHOLE, HOUR) is None
    server.flush()
    assert server.buckets(ALL, WHOLE, HOUR) is None
    other = ALL.select(np.array([False, True]))
    assert server.buckets(other, WHOLE, HOUR) == server.expected(other, WHOLE, HOUR) != []


def test_a_flush_without_imported_series_leaves_their_hours_as_they_are():
    imported = NOTHING.begin(np.array([1, 2], np.uint64)).add_stored([JournalBlock(rows_of(lines(0)).copy())])
    assert len(imported.hours)
    assert imported.add_stored([JournalBlock(rows_of([(0, 5, 1.0), (3, 5, 1.0)]).copy())]) is imported


def test_past_the_bound_the_rest_of_a_flush_is_not_read(monkeypatch):
    monkeypatch.setattr("jobmeter.store.clickhouse.imported._MOST_HOURS", 5)
    sections = [JournalBlock(rows_of(lines(hour)).copy()) for hour in range(3)]
    begun = NOTHING.begin(np.array([1, 2], np.uint64))
    assert len(begun.add_stored(sections[:2]).hours) == 4

    def further():
        yield from sections
        pytest.fail("a section behind the bound was read")

    assert begun.add_stored(further()) is NOTHING


def test_rows_that_a_flush_takes_across_a_deletion_are_not_counted(server):
    server.append(lines(0))

    def delete():
        server.journal.forget()
        server.journal.begin(np.array([1, 2], np.uint64))

    server.engine.on_insert = delete
    server.flush()
    assert server.buckets(ALL, WHOLE, HOUR) is None


def test_a_roll_up_without_hours_keeps_series_that_have_begun(chdb_store):
    chdb_store.commit_log.begin(ALL.series)
    chdb_store.roll_up(0)
    assert chdb_store.read_imported_buckets(ALL, WHOLE, HOUR) is not None


def runs_of(start, count, times):
    return OwnedRuns(np.array([7]), np.array([start]), np.array([count]), np.array(times), np.zeros(len(times)))


def test_an_owner_whose_times_do_not_ascend_has_no_buckets():
    found, wrong = make_buckets([runs_of(1, 2, [0, 1, 2])], (0, 9), 2, 5)
    assert (found["time"].tolist(), found["samples"].tolist(), wrong.tolist()) == ([0, 2], [1, 1], [])
    for sections in ([runs_of(0, 3, [2, 1, 4])], [runs_of(0, 2, [1, 4]), runs_of(1, 1, [0, 4])]):
        found, wrong = make_buckets(sections, (0, 9), 2, 5)
        assert (len(found), wrong.tolist()) == (0, [7])


def test_an_owner_beyond_the_bound_has_no_buckets():
    found, wrong = make_buckets([runs_of(0, 3, [0, 2, 4])], (0, 9), 2, 2)
    assert (len(found), wrong.tolist()) == (0, [7])


def test_runs_must_lie_inside_the_rows():
    for start, count in ((2, 2), (-1, 1), (0, 0)):
        with pytest.raises(IndexError, match="outside of 3 rows"):
            make_buckets([runs_of(start, count, [0, 1, 2])], (0, 9), 2, 5)
