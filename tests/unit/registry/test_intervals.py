"""Tests of joining intervals, against the simplest correct method: a set of marked times."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.registry.intervals import DeviceKey, Interval, join

KEY = DeviceKey("p", "j", "r", "n", "d", "import")


def apply(stored: list[Interval], fresh: list[Interval], gap: int) -> list[Interval]:
    """Apply the changes like the database."""
    rows = {merged.row: merged for merged in stored}
    for change in join({KEY: stored}, [(KEY, interval) for interval in fresh], gap):
        for row in change.drop:
            del rows[row]
        row = change.keep.row if change.keep.row is not None else max((r or 0 for r in rows), default=0) + 1
        rows[row] = Interval(change.keep.start, change.keep.end, change.keep.cluster, change.keep.rank, row)
    return sorted(rows.values(), key=lambda merged: merged.start)


def oracle(spans: list[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Sort the intervals, and sweep over them."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


spans = st.tuples(st.integers(0, 60), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(batches=st.lists(st.lists(spans, max_size=4), max_size=6), gap=st.integers(0, 4))
def test_closed_intervals_join_as_a_sweep_does(batches: list[list[tuple[int, int]]], gap: int) -> None:
    merged: list[Interval] = []
    for batch in batches:
        merged = apply(merged, [Interval(start, end) for start, end in batch], gap)
    assert [(one.start, one.end) for one in merged] == oracle([span for batch in batches for span in batch], gap)


@given(batch=st.lists(spans, min_size=1, max_size=6), gap=st.integers(0, 4))
def test_saying_it_again_is_no_change(batch: list[tuple[int, int]], gap: int) -> None:
    fresh = [Interval(start, end) for start, end in batch]
    merged = apply([], fresh, gap)
    assert join({KEY: merged}, [(KEY, interval) for interval in fresh], gap) == []


def test_an_end_closes_what_is_open() -> None:
    merged = apply([], [Interval(10, None)], 0)
    assert apply(merged, [Interval(10, 40)], 0) == [Interval(10, 40, row=1)]
    assert apply(merged, [Interval(20, 40)], 0) == [Interval(10, 40, row=1)]


def test_an_opening_delivered_again_after_the_end_opens_nothing() -> None:
    merged = apply([], [Interval(10, None), Interval(10, 40)], 0)
    assert apply(merged, [Interval(10, None)], 0) == merged


def test_an_interval_that_ends_where_another_opens_leaves_it_open() -> None:
    merged = apply([], [Interval(40, None)], 0)
    assert apply(merged, [Interval(10, 40)], 0) == [Interval(10, None, row=1)]


def test_a_later_opening_stands_beside_what_has_ended() -> None:
    merged = apply([], [Interval(10, 40), Interval(60, None)], 0)
    assert [(one.start, one.end) for one in merged] == [(10, 40), (60, None)]


def test_other_devices_are_left_alone() -> None:
    other = DeviceKey("p", "j", "r", "n", "e", "import")
    [change] = join({KEY: [Interval(0, 10, row=1)]}, [(other, Interval(5, 15))], 0)
    assert (change.key, change.keep.row, change.drop) == (other, None, ())
