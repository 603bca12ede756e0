"""What is remembered of what goes on, in its bounds."""

import pytest

from jobmeter.registry import interval_cache
from jobmeter.registry.interval_cache import IntervalCache, IntervalChanges
from jobmeter.registry.intervals import Interval


def learned(job: str, devices: int, end: int) -> IntervalChanges:
    ends = {(("p", job), ("w", "n", f"gpu{at}")): Interval(0, end, row=at) for at in range(devices)}
    return IntervalChanges(ends, [(("p", job), ("w", 0))])


def test_what_goes_on_for_long_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_cache, "MOST", 20)
    cache = IntervalCache(alone=True)
    cache.commit(learned("j", 8, 0))
    for minute in range(1, 100):
        # Only what is new is learned of replicas.
        cache.commit(IntervalChanges(learned("j", 8, minute).ends))
        assert cache.runs(("p", "j"), ("w", 0))
    assert [interval.end for interval in cache._intervals["p", "j"].values()] == [99] * 8


def test_more_than_may_be_remembered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_cache, "MOST", 20)
    cache = IntervalCache(alone=True)
    for number in range(100):
        cache.commit(learned(f"j{number}", 3, number))
        # Three devices and a replica of each job.
        assert sum(cache.runs(("p", f"j{at}"), ("w", 0)) for at in range(number + 1)) <= 5
        if number % 3 == 0:
            cache.forget([("p", f"j{number}"), ("p", "another")])
    cache.clear()
    for _ in range(2):
        cache.commit(learned("j", 18, 1))
        assert cache.runs(("p", "j"), ("w", 0))
