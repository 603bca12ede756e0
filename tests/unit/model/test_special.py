"""Tests of codes of special values, and of the series that contains them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.catalog import find
from jobmeter.model.series import Series, check_series
from jobmeter.model.special import STALE, decode_special, encode_special, is_special, make_plain, make_special


def float_bits(value):
    """Return the bits of a number."""
    return int(np.array([value]).view(np.int64)[0])


BITS = st.sampled_from([STALE, *map(float_bits, (np.nan, -np.nan, np.inf, -np.inf))])


@given(st.lists(BITS))
def test_special_values_survive_encoding_as_finite_codes(bits):
    values = np.array(bits, np.int64).view(np.float64)
    codes = encode_special(values)
    assert np.isfinite(codes).all()
    found = decode_special(codes)
    stale = [one == STALE for one in bits]
    assert (found.view(np.int64) == STALE).tolist() == stale
    np.testing.assert_array_equal(found, values)


def test_a_code_that_is_not_defined_is_nan():
    found = decode_special(np.array([0.0, -1.0, 5.0, 1e300]))
    assert np.isnan(found).all()
    assert (found.view(np.int64) != STALE).all()


def test_the_series_of_special_values_has_the_names_of_its_series():
    plain = Series("external." + "x" * 191, "lab", node="n", job="j", labels=(("a", "b"),))
    special = make_special(check_series(plain))
    assert is_special(check_series(special).metric)
    assert not is_special(plain.metric)
    assert make_plain(special) == plain
    assert find(special.metric) is not None
    assert (special.job_key, special.labels) == (plain.job_key, plain.labels)
