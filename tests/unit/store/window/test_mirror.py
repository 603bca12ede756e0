"""Tests of a follower's window: filled beside arriving writes, it never answers without one of them."""

from contextlib import nullcontext
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.store_contract.samples import batch_of
from tests.support.fakes import SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, TimeRange, read_clock
from jobmeter.store.base import ReadBudget
from jobmeter.store.window import shared
from jobmeter.store.window.shared import SharedWindow
from jobmeter.store.window.store import WindowedStore

SERIES = [Series("gpu.power", job=f"job-{number // 2}", replica=f"worker-{number}") for number in range(6)]


class Use:
    """Use of an engine whose leader is another server."""

    is_following = True
    current = True
    seconds = 10.0

    def mirror(self, memory):
        memory.trust(trusted=True)

    def watch(self, changed):
        changed(False)

    def get_valid_until(self):
        return read_clock() + self.seconds if self.current else float("-inf")

    def forward(self, batches, retention):
        return batches

    def confirm(self):
        return nullcontext()

    def check(self):
        pass


class Engine(MemoryStore):
    """Engine with the samples that the leader stored. Writes may arrive while it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.engine_use: Any = Use()
        self.on_read: list[Any] = []

    def read(self, keys, span, budget):
        blocks = list(super().read(keys, span, budget))
        while self.on_read:
            self.on_read.pop()()
        yield from blocks


class Follower:
    def __init__(self) -> None:
        self.engine, self.clock = Engine(), SetClock()
        self.store = WindowedStore(self.engine, self.clock, length_ms=2 * HOUR, bound=1 << 24)
        self.now = self.clock.now_ms()

    def write(self, rows):
        """Store samples as the leader does, and send them to this follower."""
        batch = batch_of([((SERIES[number], self.now - age), value) for number, age, value in rows])
        self.engine.append_all((batch,))
        self.store.apply([batch], 0)

    def in_window(self, numbers):
        keys = SeriesKeys.from_series([SERIES[number] for number in numbers])
        memory = self.store.memory
        assert memory is not None
        found = memory.read(keys, self.span, most=10_000)
        return (
            None
            if found is None
            else sorted(zip(found.index.tolist(), found.time.tolist(), found.value.tolist(), strict=True))
        )

    def in_engine(self, numbers):
        keys = SeriesKeys.from_series([SERIES[number] for number in numbers])
        found = list(MemoryStore.read(self.engine, keys, self.span, ReadBudget()))
        if not found:
            return []
        columns = [np.concatenate([getattr(one, name) for one in found]) for name in ("index", "time", "value")]
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    @property
    def span(self):
        return TimeRange(self.now - HOUR, self.now + 1)


def rows_of(found):
    return sorted(zip(found.index.tolist(), found.time.tolist(), found.value.tolist(), strict=True))


ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, HOUR - 1), st.integers(0, 9).map(float)), min_size=1, max_size=8
)
STEPS = st.lists(st.tuples(st.sampled_from(["write", "fill", "fill beside writes", "delete"]), ROWS), max_size=12)


@given(STEPS)
def test_an_answer_from_memory_has_every_write(steps):
    one = Follower()
    for step, rows in steps:
        if step == "write":
            one.write(rows)
        elif step == "delete":
            job = SERIES[rows[0][0]].job_key
            one.engine.delete_job(job)
            one.store.invalidate([job], dropped=True)
        else:
            if step == "fill beside writes":
                one.engine.on_read.append(lambda rows=rows: one.write(rows))
            one.store.fill(3)
        for number in range(6):
            found = one.in_window([number])
            assert found is None or found == one.in_engine([number])


def test_a_new_series_is_in_the_window_after_the_next_fill():
    one = Follower()
    one.write([(0, 5, 1.0)])
    assert one.in_window([0]) is None
    while one.store.fill(3):
        pass
    assert one.in_window([0]) == one.in_engine([0])


def test_a_server_that_may_lack_writes_does_not_answer_from_memory():
    one = Follower()
    one.write([(0, 5, 1.0)])
    one.store.fill(3)
    one.engine.engine_use.current = False
    assert one.store.memory is None
    assert one.store.get_revision([SERIES[0].job_key]) is None


def test_workers_answer_as_long_as_the_answers_of_their_server_count(monkeypatch):
    one = Follower()
    worker: Any = SharedWindow.open(one.store.window.descriptor or 0)
    assert not worker.is_closed
    later = read_clock() + 11
    monkeypatch.setattr(shared, "read_clock", lambda: later)
    assert worker.is_closed, "nobody has renewed it"
    one.engine.engine_use.seconds = 30.0
    one.store.renew()
    assert not worker.is_closed
    one.engine.engine_use.current = False
    one.store.renew()
    assert worker.is_closed
    one.engine.engine_use.current = True
    one.store.trust(trusted=False)
    one.store.renew()
    assert worker.is_closed, "a server without a role"
    one.store.trust(trusted=True)
    assert not worker.is_closed
    one.store.close()
    one.store.renew()
    assert worker.ended
    worker.close()
