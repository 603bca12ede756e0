"""Tests of points as text: equal to the output of the json module for the same numbers."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.kernel import points
from jobmeter.promql.numbers import format_number

TIMES = st.integers(-(2**63), 2**63 - 1)
VALUES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(st.tuples(TIMES, VALUES), max_size=12), max_size=6))
def test_the_text_reads_as_the_same_points(lines):
    ends = list(itertools.accumulate(map(len, lines)))
    times = np.array([time for line in lines for time, _ in line], np.int64)
    values = np.array([value for line in lines for _, value in line], np.float64)
    assert [json.loads(text) for text in points.encode(ends, times, values)] == [
        [[time, value] for time, value in line] for line in lines
    ]
    alone = [json.loads(text) for text in points.encode(ends, None, values)]
    assert alone == [[value for _, value in line] for line in lines]


@given(st.lists(VALUES, min_size=1, max_size=50))
@example([0.0, -0.0, 120.0, 1e9, 999_999_999.99, 1e15, 1e16, 1e17, 0.05, 1e-4, 1e-5, 9.99e-6, 5e-324, 1.7e308, -4.35])
def test_a_value_has_the_fewest_digits_that_read_as_it(values):
    (text,) = points.encode([len(values)], np.arange(len(values)), np.array(values))
    found = [point.partition(b",")[2].decode() for point in text[2:-2].split(b"],[")]
    assert list(map(float, found)) == values
    assert list(map(_digits, found)) == list(map(_digits, map(repr, values)))


def _digits(number: str) -> str:
    """Return the significant digits and the sign of a number."""
    plain = number.partition("e")[0]
    digits = plain.replace(".", "").lstrip("-0").rstrip("0")
    return "-" + digits if plain.startswith("-") else digits


def test_a_value_is_written_as_json_has_a_number_that_need_not_be_whole():
    values = np.array([0.0, -0.0, 120.0, 1e15, 1e16, 0.05, 1e-5, 2.5e-7, -1.5e300])
    (text,) = points.encode([9], np.zeros(9, np.int64), values)
    written = [point.partition(b",")[2].decode() for point in text[2:-2].split(b"],[")]
    assert written == ["0.0", "-0.0", "120.0", "1000000000000000.0", "1e+16", "0.05", "0.00001", "2.5e-7", "-1.5e+300"]


def test_more_points_than_a_short_call_writes_are_the_same_text():
    time, value = np.arange(5_000) * 15_000, np.arange(5_000) / 7
    (whole,) = points.encode([5_000], time, value)
    halves = points.encode([2_000], time[:2_000], value[:2_000]) + points.encode([3_000], time[2_000:], value[2_000:])
    assert whole == halves[0][:-1] + b"," + halves[1][1:]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_null_and_never_shifts_the_others(value):
    (text,) = points.encode([2], np.array([1, 2], np.int64), np.array([value, 0.5]))
    assert json.loads(text) == [[1, None], [2, 0.5]]


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**13), st.floats()), max_size=12), max_size=6))
@example(
    [[(0, 0.0), (1, -0.0), (10, 1e-6), (100, 9.99e-7), (1_000, -1e21), (60_500, 9.99e20), (1, 123456789012345678.0)]]
)
@example([[(0, 5e-324), (1, 1.7e308), (2, math.nan), (3, math.inf), (4, -math.inf), (5, 0.05), (6, 1e9), (7, -2.5e-7)]])
def test_prometheus_has_seconds_and_the_value_as_a_text(lines):
    ends = list(itertools.accumulate(map(len, lines)))
    times = np.array([time for line in lines for time, _ in line], np.int64)
    values = np.array([value for line in lines for _, value in line], np.float64)
    expected = [[f'[{time / 1000},"{format_number(value)}"]' for time, value in line] for line in lines]
    texts = points.encode(ends, times, values, as_text=True)
    assert [text.decode() for text in texts] == [f"[{','.join(line)}]" for line in expected]
    with pytest.raises(ValueError, match="do not end"):
        points.encode(ends, None, values, as_text=True)


def test_no_lines_are_no_text():
    none = np.empty(0, np.int64)
    assert points.encode([], none, none.astype(float)) == []


def test_lines_that_end_elsewhere_than_their_points_are_refused():
    times, values = np.array([1, 2], np.int64), np.array([1.0, 2.0])
    for ends in ([1], [3], [2, 1], [-1, 2], [3, 2]):
        with pytest.raises(ValueError, match="do not end"):
            points.encode(ends, times, values)


@given(st.lists(st.tuples(st.integers(1, 10**17 - 1), st.integers(-22, 6)), min_size=1, max_size=50))
def test_decimals_of_every_length_are_written_as_they_are(decimals):
    values = np.array([float(f"{digits}e{exponent}") for digits, exponent in decimals])
    (text,) = points.encode([len(values)], None, values)
    assert list(map(_digits, text.decode()[1:-1].split(","))) == [_digits(repr(value)) for value in values.tolist()]
