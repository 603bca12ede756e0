"""Tests of samples of any age in pages, against a dictionary of each series."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series_table import SeriesTable
from jobmeter.store.window.merge import merge, sort_samples
from jobmeter.store.window.pages import NO_PAGE, Pages, SeriesRows

SERIES = 3
RUNS = st.tuples(
    st.integers(0, SERIES - 1),
    st.one_of(st.integers(-300, 900), st.sampled_from([2**31 + 1, 2**32 + 3])),
    st.integers(1, 5),
    st.integers(1, 150),
)
"""Samples of a series: the first time, the step between times, and the count."""
WRITES = st.lists(st.lists(RUNS, min_size=1, max_size=4), max_size=8)


def samples_of(runs, turn):
    """Return the values of runs by (series, time), in that order."""
    found = {
        (at, start + step * number): turn + number / 1000 for at, start, step, count in runs for number in range(count)
    }
    return dict(sorted(found.items()))


def content(pages, rows, row):
    """Return the content of a row by time, and check that its pages are sound."""
    _, chain = pages.follow_chains(rows.first_page[[row]])
    assert (chain[-1] if len(chain) else NO_PAGE) == rows.last_page[row]
    assert all(0 < filled <= PAGE for filled in pages.filled[chain].tolist())
    _, time, value = pages.read_content(chain)
    assert (np.diff(time) > 0).all()
    return dict(zip(time.tolist(), value.tolist(), strict=True))


@given(WRITES, st.sampled_from([400, 9]))
@example([[(0, 0, 1, 64)], [(0, 1, 5, 1)], [(0, -1, 1, 1)], [(0, 30, 1, 1)]], 400)
def test_every_series_has_what_was_written_last_or_is_given_up_as_a_whole(writes, size):
    pages, rows = Pages(size), SeriesRows(SeriesTable(SERIES))
    numbers = np.arange(SERIES, dtype=np.uint64)
    every = rows.add_all(SeriesKeys(numbers, numbers), 0)
    expected = [dict[int, float]() for _ in every]
    for turn, runs in enumerate(writes):
        written = samples_of(runs, turn)
        own, index = np.unique([at for at, _ in written], return_inverse=True)
        lost = merge(
            pages, rows, every[own], index, np.array([time for _, time in written]), np.array([*written.values()])
        )
        for at, time in written:
            if every[at] not in lost:
                expected[at][time] = written[at, time]
        for at, row in enumerate(every.tolist()):
            assert content(pages, rows, row) == dict(sorted(expected[at].items()))
            assert row in lost or not expected[at] or rows.last[row] >= max(expected[at])
        _, chains = pages.follow_chains(rows.first_page[every])
        assert len(set(chains.tolist())) == len(chains) == pages.used
        assert size == 9 or not len(lost)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-(2**62), -1, 0, 1, 5, 2**62])), min_size=1))
def test_samples_are_put_in_order_however_far_apart_they_are(samples):
    index, time = (np.array(part, np.int64) for part in zip(*samples, strict=True))
    found = sort_samples(index, time, np.arange(len(samples), dtype=np.float64))
    expected = {pair: number for number, pair in enumerate(samples)}
    rows = [(at, moment, expected[at, moment]) for at, moment in sorted(expected)]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == rows
