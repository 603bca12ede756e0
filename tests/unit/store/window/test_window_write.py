"""Tests of writes to the window in one pass, against the general way with arrays."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.model.batch import SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.store.window.pages import PageWriter
from jobmeter.store.window.window import Window

SERIES = 4
KEYS = SeriesKeys(np.zeros(SERIES, np.uint64), np.arange(1, SERIES + 1, dtype=np.uint64))
BEGIN = 2**41
LENGTH = 2**33
TIMES = st.one_of(st.integers(0, 300), st.sampled_from([-LENGTH - 5, -7, 2**31 + 1, 2**32 + 3]))
WRITES = st.lists(st.lists(st.tuples(st.integers(0, SERIES - 1), TIMES), min_size=1, max_size=150), max_size=6)


def window_after(writes, bound, adopted):
    KEYS.derived.clear()  # the cache holds the windows of earlier examples, and their files, open
    window = Window(LENGTH, bound)
    some = SeriesKeys(KEYS.job[:adopted], KEYS.series[:adopted])
    window.adopt(some, SampleColumns.make_empty(), BEGIN - LENGTH)
    for turn, write in enumerate(writes):
        before = revisions_of(window)
        index = np.array([at for at, _ in write], np.uint32)
        time = np.array([BEGIN + at for _, at in write], np.int64)
        value = np.arange(len(write), dtype=np.float64) + 1000 * turn
        window.write_all([SampleBatch([], index, time, value, KEYS)], BEGIN)
        written = {at for at, _ in write}
        for at, (old, new) in enumerate(zip(before, revisions_of(window), strict=True)):
            assert new is None or (new != old) == (at in written)
    return window


def revisions_of(window):
    """Return the revision of the last write to each series."""
    return [window.write_revision(KEYS.select(slice(at, at + 1))) for at in range(SERIES)]


FAR = [0, 2**31 + 1, 2**32 + 3]
"""Times too far apart for one page."""


@example([[(at, time) for at in range(2) for time in FAR] + [(2, 0), (3, 0)]], 6_000, SERIES)
@example([[(at, time) for at in range(2) for time in FAR] + [(2, 0), (2, FAR[1]), (3, 0)]], 6_000, SERIES)
@given(WRITES, st.sampled_from([2**20, 6_000]), st.integers(0, SERIES))
def test_one_pass_and_arrays_keep_the_same(writes, bound, adopted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PageWriter, "append", lambda _, __, columns, *___: columns)
        slow = window_after(writes, bound, adopted)
    quick = window_after(writes, bound, adopted)
    # Without room the two ways may give up different series; the remaining data of both is right.
    roomy = bound > 6_000
    assert not roomy or quick.find_missing(KEYS).tolist() == slow.find_missing(KEYS).tolist()
    for at in range(SERIES):
        own = SeriesKeys(KEYS.job[at : at + 1], KEYS.series[at : at + 1])
        for start in (BEGIN - LENGTH, BEGIN - 7, BEGIN, BEGIN + 100):
            found, expected = (one.read(own, TimeRange(start, BEGIN + 2**34)) for one in (quick, slow))
            assert not roomy or (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert found.time.tolist() == expected.time.tolist()
                assert found.value.tolist() == expected.value.tolist()


GROUPS = st.lists(st.lists(st.one_of(st.none(), TIMES), min_size=SERIES, max_size=SERIES), min_size=1, max_size=6)


def batch(times, turn):
    """Return a batch with one sample of each series that has a time."""
    chosen = [at for at, time in enumerate(times) if time is not None]
    keys = SeriesKeys(KEYS.job[chosen], KEYS.series[chosen])
    time = np.array([BEGIN + times[at] for at in chosen], np.int64)
    value = np.array(chosen, np.float64) + 10 * turn
    series = [Series("cpu.usage", job=str(at)) for at in chosen]
    return SampleBatch(series, np.arange(len(chosen), dtype=np.uint32), time, value, keys)


@given(GROUPS, st.integers(0, SERIES))
def test_a_group_is_written_as_its_batches_one_after_the_other_would_be(group, adopted):
    batches = [batch(times, turn) for turn, times in enumerate(group)]
    together, apart = window_after([], 2**20, adopted), window_after([], 2**20, adopted)
    together.write_all(batches, BEGIN)
    for one in batches:
        apart.write_all([one], BEGIN)
    assert together.find_missing(KEYS).tolist() == apart.find_missing(KEYS).tolist()
    for at in range(adopted):
        own = SeriesKeys(KEYS.job[at : at + 1], KEYS.series[at : at + 1])
        for start in (BEGIN - LENGTH, BEGIN - 7, BEGIN, BEGIN + 100):
            found, expected = (one.read(own, TimeRange(start, BEGIN + 2**34)) for one in (together, apart))
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert found.time.tolist() == expected.time.tolist()
                assert found.value.tolist() == expected.value.tolist()
