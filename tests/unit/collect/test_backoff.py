"""Tests of the pauses between two attempts to open a device or its driver."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.backoff import LONGEST_MS, Backoff
from jobmeter.model.time import SECOND
from jobmeter.testing.collector import NOW_MS


@given(st.integers(100, 30_000), st.integers(1, 200), st.randoms())
def test_a_backoff_tries_soon_then_rarely_and_at_least_once_a_minute(interval_ms, looks, chance: random.Random):
    backoff, now_ms = Backoff(), 0
    tries: list[int] = []
    for _ in range(looks):
        now_ms += interval_ms + chance.randrange(interval_ms)
        backoff.tick(now_ms)
        if backoff.due:
            tries.append(now_ms)
            backoff.note_failure()
    assert tries[0] <= 2 * interval_ms
    if len(tries) > 1:
        assert tries[1] - tries[0] <= 2 * interval_ms, "the second look tries again"
    waits = [after - before for before, after in pairwise(tries)]
    assert all(wait <= LONGEST_MS + 2 * interval_ms for wait in waits)
    assert all(wait >= min(SECOND << max(at - 1, 0), LONGEST_MS) for at, wait in enumerate(waits) if at)
    backoff.note_success()
    assert backoff.due


def test_a_backoff_without_a_time_or_with_a_clock_that_was_set_back_tries():
    backoff = Backoff()
    for _ in range(10):
        backoff.tick(NOW_MS)
        backoff.note_failure()
    found = [backoff.due]
    for now_ms in (NOW_MS - 1, None):
        backoff.tick(now_ms)
        found.append(backoff.due)
    assert found == [False, True, True]
