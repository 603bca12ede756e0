"""Tests of rate limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.access.conftest import FixedClock

from jobmeter.access.limit import Per, Rate, RateLimiter, parse_rates
from jobmeter.errors import ConfigurationError, ThrottledError


def admitted(limiter: RateLimiter, key: str = "k", operation: str = "GetJobMetrics") -> bool:
    try:
        limiter.take(key, operation)
    except ThrottledError:
        return False
    return True


def test_a_burst_then_the_rate(clock: FixedClock) -> None:
    limiter = RateLimiter(clock, {"*": Rate(2, 5)})
    assert [admitted(limiter) for _ in range(7)] == [True] * 5 + [False] * 2
    clock.ms += 500
    assert [admitted(limiter) for _ in range(2)] == [True, False]
    clock.ms += 3_600_000
    assert [admitted(limiter) for _ in range(6)] == [True] * 5 + [False]


def test_keys_and_operations_are_counted_apart(clock: FixedClock) -> None:
    limiter = RateLimiter(clock, {"A": Rate(1, 1), "B": Rate(1, 2)})
    assert [admitted(limiter, "k", "A"), admitted(limiter, "k", "A")] == [True, False]
    assert admitted(limiter, "other", "A")
    assert [admitted(limiter, "k", "B") for _ in range(3)] == [True, True, False]
    assert all(admitted(limiter, "k", "unlimited") for _ in range(1000))


def test_the_refusal_says_how_long_to_wait(clock: FixedClock) -> None:
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
    clock = FixedClock()
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


def test_memory_is_bounded(clock: FixedClock) -> None:
    limiter = RateLimiter(clock, {"*": Rate(1, 1)}, most=10)
    for number in range(100):
        limiter.take(f"k{number}", "A")
    throttled = []
    for number in reversed(range(100)):
        try:
            limiter.take(f"k{number}", "A")
        except ThrottledError:
            throttled.append(number)
    assert throttled == list(range(99, 89, -1)), "only the newest keys have their calls counted"


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


def test_a_rate_of_an_account_counts_the_calls_of_all_its_keys(clock: FixedClock) -> None:
    limiter = RateLimiter(clock)
    documented = Rate(1, 2, Per.ACCOUNT)
    limiter.take("k", "DeleteResourceLog", documented, "team-a")
    limiter.take("other", "DeleteResourceLog", documented, "team-a")
    with pytest.raises(ThrottledError, match="for each account"):
        limiter.take("third", "DeleteResourceLog", documented, "team-a")
    limiter.take("third", "DeleteResourceLog", documented, "team-b")


def test_a_setting_changes_the_rate_and_optionally_its_scope(clock: FixedClock) -> None:
    documented = Rate(10, 10, Per.ACCOUNT)
    still = RateLimiter(clock, parse_rates("A=1"))
    still.take("k", "A", documented, "team-a")
    with pytest.raises(ThrottledError):
        still.take("other", "A", documented, "team-a")
    each = RateLimiter(clock, parse_rates("A=1/key"))
    each.take("k", "A", documented, "team-a")
    each.take("other", "A", documented, "team-a")
    assert parse_rates("A=20:30/account, B=2 / key") == {"A": Rate(20, 30, Per.ACCOUNT), "B": Rate(2, 2, Per.KEY)}


def test_a_key_called_like_an_account_has_a_bucket_of_its_own(clock: FixedClock) -> None:
    limiter = RateLimiter(clock)
    limiter.take("team-a", "A", Rate(1, 1, Per.KEY), "x")
    limiter.take("k", "A", Rate(1, 1, Per.ACCOUNT), "team-a")
