"""Tests of filling the window: it is fast after a start, and pauses after a failure of the engine."""

import pytest
from tests.support.fakes import SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.errors import UnavailableError
from jobmeter.server.background import Filling
from jobmeter.store.window.store import WindowedStore


class _Store(WindowedStore):
    def __init__(self, left):
        super().__init__(MemoryStore(), SetClock(), length_ms=1_000, bound=2**20)
        self.left = left

    def fill(self, most):
        found = self.left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_it_goes_on_at_once_while_something_is_left_and_then_rests():
    filling = Filling(_Store([True, True, False, False]), SetClock())
    waits = []
    for _ in range(4):
        waits.append(filling.interval)
        filling.round()
    assert waits[0] < 0.5  # the first queries run before the filling
    assert max(waits[1:3]) < 0.1
    assert waits[3] > 60


def test_a_failure_is_not_repeated_a_hundred_times_a_second():
    filling = Filling(_Store([UnavailableError("no answer"), True, False]), SetClock())
    with pytest.raises(UnavailableError):
        filling.round()
    assert filling.interval >= 5
    filling.round()
    assert filling.interval < 0.1
