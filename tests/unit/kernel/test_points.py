"""Points as text are what the json module writes of the same numbers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel import points

pytestmark = pytest.mark.skipif(not points.AVAILABLE, reason="there is no compiled kernel")

TIMES = st.integers(-(2**63), 2**63 - 1)
VALUES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(st.tuples(TIMES, VALUES), max_size=12), max_size=6))
def test_the_text_reads_as_the_same_points(lines):
    times = [np.array([time for time, _ in line], np.int64) for line in lines]
    values = [np.array([value for _, value in line], np.float64) for line in lines]
    assert [json.loads(bytes(text)) for text in points.encode(times, values)] == [
        [[time, value] for time, value in line] for line in lines
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_null_and_never_shifts_the_others(value):
    (text,) = points.encode([np.array([1, 2], np.int64)], [np.array([value, 0.5])])
    assert json.loads(bytes(text)) == [[1, None], [2, 0.5]]


def test_no_lines_are_no_text():
    assert points.encode([], []) == []
