"""Rate limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.access.conftest import HeldClock

from jobmeter.access.limit import Rate, RateLimiter, parse_rates
from jobmeter.errors import ConfigurationError, ThrottledError


def admitted(limiter: RateLimiter, key: str = "k", operation: str = "GetJobMetrics") -> bool:
    try:
        limiter.take(key, operation)
    except ThrottledError:
        return False
    return True


def test_a_burst_then_the_rate(clock: HeldClock) -> None:
    limiter = RateLimiter(clock, {"*": Rate(2, 5)})
    assert [admitted(limiter) for _ in range(7)] == [True] * 5 + [False] * 2
    clock.ms += 500
    assert [admitted(limiter) for _ in range(2)] == [True, False]
    clock.ms += 3_600_000
    assert [admitted(limiter) for _ in range(6)] == [True] * 5 + [False]


def test_keys_and_operations_are_counted_apart(clock: HeldClock) -> None:
    limiter = RateLimiter(clock, {"A": Rate(1, 1), "B": Rate(1, 2)})
    assert [admitted(limiter, "k", "A"), admitted(limiter, "k", "A")] == [True, False]
    assert admitted(limiter, "other", "A")
    assert [admitted(limiter, "k", "B") for _ in range(3)] == [True, True, False]
    assert all(admitted(limiter, "k", "unlimited") for _ in range(1000))


def test_the_refusal_says_how_long_to_wait(clock: HeldClock) -> None:
    limiter = RateLimiter(clock, {"*": Rate(4, 1)})
    limiter.take("k", "A")
    with pytest.raises(ThrottledError) as refused:
        limiter.take("k", "A")
    assert refused.value.retry_after_ms == 250
    clock.ms += refused.value.retry_after_ms
    limiter.take("k", "A")


@given(
    steps=st.lists(st.integers(0, 3000), max_size=60),
    per_second=st.sampled_from([0.5, 1, 3, 10]),
    burst=st.integers(1, 5),
)
def test_never_more_than_the_burst_and_the_rate(steps: list[int], per_second: float, burst: int) -> None:
    clock = HeldClock()
    limiter = RateLimiter(clock, {"*": Rate(per_second, burst)})
    times = []
    for step in steps:
        clock.ms += step
        if admitted(limiter):
            times.append(clock.ms)
    for first in range(len(times)):
        for last in range(first, len(times)):
            window = (times[last] - times[first]) / 1000
            assert last - first + 1 <= burst + window * per_second + 1e-6


def test_memory_is_bounded(clock: HeldClock) -> None:
    limiter = RateLimiter(clock, {"*": Rate(1, 1)}, most=10)
    for number in range(100):
        limiter.take(f"k{number}", "A")
    assert len(limiter._buckets) == 10


def test_rates_are_read_from_text() -> None:
    assert parse_rates("") == {}
    assert parse_rates(" GetJobMetrics = 50:100, *=0.5 ,metrics:read=7") == {
        "GetJobMetrics": Rate(50, 100),
        "*": Rate(0.5, 1),
        "metrics:read": Rate(7, 7),
    }


@pytest.mark.parametrize("text", ["x", "a=0", "a=-1", "a=1:0", "a=1:2:3", "=5", "a=1 b=2", "a=nan"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_rates(text)
