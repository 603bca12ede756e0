"""Tests of the columns of a frame: the library agrees with NumPy for any offset in the payload."""

import numpy as np
import pytest
from tests.oracle import kernel as oracle

from jobmeter.kernel import samples

TIMES = (0, 1, -1, 2**63 - 1, -(2**63), 1_795_000_000_000)
VALUES = (0.0, -0.0, 1.5, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"))


def payload(counts, time, value, at=0):
    columns = np.array(counts, "<u4"), np.array(time, "<i8"), np.array(value, "<f8")
    return b"x" * at + b"".join(column.tobytes() for column in columns)


def content(found):
    """Return all columns as bytes and texts, so that NaN equals NaN and -0.0 differs from 0.0."""
    span, extremes = repr(found.span), repr(None if found.extremes is None else [*map(float, found.extremes)])
    return found.time.tobytes(), found.value.tobytes(), span, extremes.replace("-0.0", "0.0"), found.single


@pytest.mark.parametrize("few", [samples._FEW, 0])
def test_the_columns_are_those_of_numpy(monkeypatch, few):
    monkeypatch.setattr(samples, "_FEW", few)
    chance = np.random.default_rng(7)
    for _ in range(500):
        series = int(chance.integers(0, 9))
        counts = np.ones(series) if chance.random() < 0.5 else chance.integers(0, 4, series)
        count = int(counts.sum())
        time, value = chance.choice(TIMES, count), chance.normal(size=count)
        if chance.random() < 0.5:
            value = chance.choice(VALUES, count)
        at = int(chance.integers(0, 9))
        data = payload(counts, time, value, at)
        expected = oracle.columns(data, at, series, count)
        found = samples.copy_columns(data, at, series, count)
        assert found is not None
        assert content(found) == content(expected)
        assert found.time.flags.aligned
        assert found.value.flags.writeable


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_value_that_is_not_finite_leaves_no_extremes(bad, place):
    value = [1.0, 2.0, 3.0]
    value[place] = bad
    for columns in (samples.copy_columns, oracle.columns):
        found = columns(payload([3], [1, 2, 3], value), 0, 1, 3)
        assert found is not None
        assert repr([*map(float, found.extremes or ())]) == "[nan, nan]"


@pytest.mark.parametrize(("counts", "rows"), [([1, 1], 3), ([2, 2], 3), ([2**32 - 1, 4], 3), ([], 1), ([0], 1)])
def test_counts_that_do_not_add_up_are_no_columns(counts, rows):
    data = payload(counts, range(rows), range(rows))
    assert samples.copy_columns(data, 0, len(counts), rows) is None
    assert oracle.columns(data, 0, len(counts), rows) is None


@pytest.mark.parametrize(("at", "series", "rows"), [(1, 1, 2), (0, 2, 2), (0, 1, 3), (-1, 1, 2)])
def test_columns_beyond_the_data_are_an_error(at, series, rows):
    with pytest.raises(IndexError, match=f"{series} series and {rows} samples"):
        samples.copy_columns(payload([2], [1, 2], [1.0, 2.0]), at, series, rows)
