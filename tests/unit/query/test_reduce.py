"""Tests of buckets: any grouping merges equally; counters count from the previous sample, and resets from zero."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.model.batch import BucketColumns, References, SampleColumns
from jobmeter.query.reduce import FIELDS, build_buckets, coarsen, merge

COUNTERS = np.array([True, False, True])
points = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 5_000)), st.integers(0, 400).map(lambda n: n / 4), max_size=60
)


def columns(rows: dict[tuple[int, int], float]) -> SampleColumns:
    ordered = sorted(rows.items())
    return SampleColumns(
        np.array([index for (index, _), _ in ordered], np.uint32),
        np.array([time for (_, time), _ in ordered], np.int64),
        np.array([value for _, value in ordered], np.float64),
    )


def same(one: BucketColumns, other: BucketColumns) -> None:
    for name in FIELDS:
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name


@settings(deadline=None)
@given(points, st.lists(st.integers(0, 5_000), max_size=4), st.sampled_from([7, 100, 1000]))
def test_segments_of_any_cut_merge_to_the_whole(rows, cuts, step):
    whole = build_buckets(columns(rows), step, COUNTERS, References.make_empty(3))
    references = References.make_empty(3)
    edges = [-1, *sorted(cuts), 10_000]
    parts = [
        build_buckets(columns({key: v for key, v in rows.items() if low <= key[1] < high}), step, COUNTERS, references)
        for low, high in itertools.pairwise(edges)
    ]
    same(merge(parts), whole)


@settings(deadline=None)
@given(points, st.sampled_from([(10, 100), (50, 1000), (100, 100)]))
def test_coarsened_buckets_are_those_of_the_longer_step(rows, steps):
    fine = build_buckets(columns(rows), steps[0], COUNTERS, References.make_empty(3))
    same(coarsen(fine, steps[1]), build_buckets(columns(rows), steps[1], COUNTERS, References.make_empty(3)))


@settings(deadline=None)
@given(points)
def test_merging_is_associative_in_any_order(rows):
    fine = build_buckets(columns(rows), 10, COUNTERS, References.make_empty(3))
    rest = np.arange(len(fine)) % 3
    parts = [fine.select(rest == part) for part in range(3)]
    coarse = [coarsen(part, 500) for part in parts]
    whole = coarsen(fine, 500)
    same(merge([coarse[2], merge([coarse[0], coarse[1]])]), whole)
    same(merge([merge([coarse[1], coarse[2]]), coarse[0]]), whole)


def test_a_counter_counts_from_the_sample_before_and_a_reset_from_zero():
    references = References.make_empty(1)
    references.update(np.zeros(1, np.uint32), np.array([1_000]), np.array([100.0]))
    found = build_buckets(
        columns({(0, 5_000): 110.0, (0, 6_000): 4.0, (0, 12_000): 5.0}), 10_000, COUNTERS[:1], references
    )
    assert found.increase.tolist() == [14.0, 1.0]
    assert found.elapsed.tolist() == [5_000, 6_000]


def test_the_first_sample_ever_has_no_growth_and_gauges_have_none():
    found = build_buckets(columns({(0, 5_000): 7.0, (1, 5_000): 7.0}), 10_000, COUNTERS, References.make_empty(3))
    assert found.increase.tolist() == [0.0, 0.0]
    assert found.elapsed.tolist() == [0, 0]


@pytest.mark.parametrize("step", [1, 57_000])
def test_nothing_stays_nothing(step):
    assert len(build_buckets(SampleColumns.make_empty(), step, COUNTERS, References.make_empty(3))) == 0
    assert len(coarsen(merge([]), step)) == 0
