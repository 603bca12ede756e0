"""Tests of raw samples from the engine: each comes once, for any ends of the engine's blocks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.time import TimeRange
from jobmeter.store.base import ReadBudget
from jobmeter.store.clickhouse.pending import NOTHING
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.reader import SampleReader
from jobmeter.store.clickhouse.target import EngineTarget

KINDS = (np.uint64, np.int64, np.float64, np.uint64)
WRITTEN = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=40)


class Blocks(SampleReader):
    """Reader whose engine gives some rows, ``size`` at a time."""

    def __init__(self, rows, size):
        super().__init__(Pool(EngineTarget(), 1), lambda: NOTHING)
        self.rows, self.size = rows, size

    def read_blocks(self, sql, parameters, meter, settings=None):
        for first in range(0, len(self.rows), self.size):
            columns = zip(*self.rows[first : first + self.size], strict=True)
            yield [np.array(column, kind) for column, kind in zip(columns, KINDS, strict=True)]


@given(WRITTEN, st.integers(1, 7), st.randoms(use_true_random=False))
def test_of_samples_written_again_the_last_is_read_wherever_blocks_end(written, size, random):
    rows = [(*sample, float(at), at) for at, sample in enumerate(written)]
    random.shuffle(rows)  # the copies of a sample come in any order
    rows.sort(key=lambda row: row[:2])
    keys = SeriesKeys(np.zeros(3, np.uint64), np.arange(1, 4, dtype=np.uint64))
    found = [
        row
        for block in Blocks(rows, size).read(keys, TimeRange(0, 10), ReadBudget())
        for row in zip(block.index.tolist(), block.time.tolist(), block.value.tolist(), strict=True)
    ]
    last = {sample: float(at) for at, sample in enumerate(written)}
    assert found == [(series - 1, time, value) for (series, time), value in sorted(last.items())]
