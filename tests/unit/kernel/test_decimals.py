"""Tests of splitting values into numbers and powers of ten: joining restores them bit for bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel import decimals
from jobmeter.kernel.decimals import Decimals, Split

DECIMALS = st.builds(lambda number, digits: number / 10**digits, st.integers(-(2**53), 2**53), st.integers(0, 17))
VALUES = st.one_of(DECIMALS, st.floats(), st.sampled_from([0.0, -0.0, 2.0**53, -(2.0**53), 5e-324, 1e22, 0.1 + 0.2]))
SERIES = np.repeat(np.arange(10, dtype=np.uint64), 100)
ROWS = st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=200)


def joined(split: Split) -> np.ndarray:
    value, number, digits = split
    assert digits.max(initial=0) <= 15
    assert not (value[number != 0] != 0).any()
    return np.where(number == 0, value, number / 10.0 ** digits.astype(np.int64))


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


@given(ROWS, st.lists(ROWS, max_size=4))
def test_nothing_is_lost_whatever_came_before(rows, earlier):
    split = Decimals()
    for some in (*earlier, rows):
        series = np.array([one for one, _ in some], np.uint64) * np.uint64(decimals._SLOTS)  # all in one place
        value = np.array([one for _, one in some], np.float64)
        assert same(joined(split.split(series, value)), value)


def power(rows: int) -> np.ndarray:
    return np.round(np.random.default_rng(1).random(rows) * 300, 3)


def test_a_series_keeps_its_digits_though_its_rows_come_one_by_one():
    split, one = Decimals(), np.array([7], np.uint64)
    found = [int(split.split(one, np.array([value]))[2][0]) for value in power(500)]
    assert set(found[20:]) == {3}


def test_one_long_value_is_forgotten_after_a_while():
    value = np.append(1 / 3.0, power(500))
    value[0] = 0.123456789012
    digits = Decimals().split(np.zeros(501, np.uint64), value)[2]
    assert digits[1] == 12
    assert digits[-1] == 3


def test_long_values_that_come_again_and_noise_stay_as_they_are():
    series = np.zeros(2000, np.uint64)
    again = np.repeat(np.round(np.random.default_rng(2).random(500), 12), 4)
    value, number, _ = Decimals().split(series, again)
    assert (number[100:] == 0).all()
    assert same(value[100:], again[100:])
    noise = np.random.default_rng(3).random(2000)
    assert np.mean(Decimals().split(series, noise)[1] == 0) > 0.8


def test_decimals_become_numbers():
    value = np.round(np.random.default_rng(4).random(len(SERIES)) * 100 + 1, 2)
    rest, number, digits = Decimals().split(SERIES, value)
    assert not rest.any()
    assert np.array_equal(number / 10.0 ** digits.astype(np.int64), value)
    assert number.max() <= 10_100
