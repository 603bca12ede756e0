"""Tests of the token bucket against the sum of everything that flowed in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.token_bucket import TokenBucket

CALLS = st.lists(st.tuples(st.integers(-2, 30), st.integers(0, 50)), max_size=30)


@given(st.integers(1, 20), st.integers(1, 40), CALLS)
def test_never_more_is_taken_than_flowed_in(per_second, burst, calls):
    bucket, now, level = TokenBucket(per_second, burst, 0.0), 0, burst
    for later, wanted in calls:
        level = min(burst, level + max(0, later) * per_second)
        now += later
        assert bucket.take(wanted, now) == min(wanted, level)
        level -= min(wanted, level)
        assert bucket.level == level


@given(st.integers(1, 1_000), st.integers(-50, 0))
def test_after_the_wait_there_is_one(per_second, level):
    bucket = TokenBucket(per_second, 100, 0.0)
    bucket.level = level
    assert bucket.take(1, 0.0) == 0
    wait = bucket.wait_ms() / 1000
    assert bucket.fill(wait) == pytest.approx(1, abs=0.001 * per_second)
    assert bucket.level >= 1 - 1e-9
