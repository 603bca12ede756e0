"""Tests of durations in the sentences of findings and of differences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.diagnose.wording import format_length

UNITS = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (0, "0 s"),
        (89_999, "90 s"),
        (90_000, "2 min"),
        (7_190_000, "2 h"),
        (7_500_000, "2 h 5 min"),
        (172_799_000, "2 d"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_a_length_has_at_most_two_units(length_ms, text):
    assert format_length(length_ms) == text


@given(st.integers(0, 10**11))
def test_the_words_sum_to_the_length_but_for_the_rounding_of_the_smaller_unit(length_ms):
    words = format_length(length_ms).split()
    read = [int(count) * UNITS[unit] for count, unit in zip(words[::2], words[1::2], strict=True)]
    smallest = 3_600_000 if "d" in words else 1_000 if "s" in words else 60_000
    assert abs(sum(read) - length_ms) <= smallest / 2
