"""Tests of retry delays: they grow, have an upper limit, and differ."""

import math

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.backoff import compute_backoff

FIRST = st.floats(0.01, 10)
LONGEST = st.floats(10, 1e6)


@given(st.integers(1, 10_000), FIRST, LONGEST, st.floats(0, 1))
def test_a_wait_doubles_up_to_a_maximum_and_half_of_it_is_random(failures, first, longest, fraction):
    whole = first * 2 ** (failures - 1) if failures < 100 else math.inf
    assert math.isclose(
        compute_backoff(failures, first, longest, lambda: fraction), min(whole, longest) * (1 + fraction) / 2
    )


@given(st.integers(1, 100), FIRST, LONGEST)
def test_two_clients_do_not_wait_equally_long(failures, first, longest):
    waits = [compute_backoff(failures, first, longest) for _ in range(20)]
    assert len(set(waits)) > 1
    whole = min(first * 2 ** (failures - 1), longest)
    assert all(whole / 2 <= wait <= whole for wait in waits)
