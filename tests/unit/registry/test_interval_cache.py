"""Tests of the cache of ongoing intervals, and of its limits."""

from unittest.mock import Mock

import pytest
from tests.support.registries import observation

from jobmeter.registry import interval_cache
from jobmeter.registry.interval_cache import IntervalCache, IntervalChanges
from jobmeter.registry.intervals import GAP_MS, Interval


def learned(job: str, devices: int, end: int) -> IntervalChanges:
    ends = {(("p", job), ("w", "n", f"gpu{at}")): Interval(0, end, row=at) for at in range(devices)}
    return IntervalChanges(ends, [(("p", job), ("w", 0))])


def test_what_goes_on_for_long_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_cache, "MOST", 20)
    cache = IntervalCache(alone=True)
    cache.commit(learned("j", 8, 0))
    for minute in range(1, 100):
        # Replicas contribute only new facts.
        cache.commit(IntervalChanges(learned("j", 8, minute).ends))
        assert cache.is_running(("p", "j"), ("w", 0))
    later = 99 + GAP_MS  # continues an end of 99, but no earlier one
    same = [observation(later, later, project="p", device=f"gpu{at}") for at in range(8)]
    assert cache.go_on(Mock(**{"exec_driver_sql.return_value.rowcount": 8}), same, IntervalChanges()) == []


def test_more_than_may_be_remembered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_cache, "MOST", 20)
    cache = IntervalCache(alone=True)
    for number in range(100):
        cache.commit(learned(f"j{number}", 3, number))
        # Three devices and a replica of each job.
        assert sum(cache.is_running(("p", f"j{at}"), ("w", 0)) for at in range(number + 1)) <= 5
        if number % 3 == 0:
            cache.forget([("p", f"j{number}"), ("p", "another")])
    cache.clear()
    for _ in range(2):
        cache.commit(learned("j", 18, 1))
        assert cache.is_running(("p", "j"), ("w", 0))
