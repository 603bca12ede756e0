"""Tests of unit conversion: the result is the number that a person would write."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.ingest.exporters.label_resolver import round_significant


@given(st.integers(0, 10_000))
def test_percent_becomes_the_plain_decimal(hundredths):
    percent = hundredths / 100
    assert round_significant(np.array([percent]) * 0.01)[0] == float(f"{hundredths}e-4")


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_every_value_is_the_nearest_double_of_twelve_digits(value):
    rounded = float(round_significant(np.array([value]))[0])
    expected = float(f"{value:.11e}")
    # A tie in the thirteenth digit may be rounded either way; all else is exact.
    assert rounded == expected or math.isclose(rounded, value, rel_tol=5.0000001e-12)
    assert float(f"{rounded:.11e}") == rounded


def test_what_is_no_number_passes():
    assert np.isnan(round_significant(np.array([np.nan]))[0])
    assert round_significant(np.array([np.inf, -np.inf, 0.0])).tolist() == [np.inf, -np.inf, 0.0]


@pytest.mark.parametrize("value", [1e-320, 5e-13, 1e22, 1.7e308, 123456789012345.0])
def test_far_magnitudes(value):
    assert round_significant(np.array([value]))[0] == pytest.approx(float(f"{value:.11e}"), rel=1e-15)
