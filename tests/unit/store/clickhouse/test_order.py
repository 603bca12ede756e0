"""Tests of precedence between rows that were written twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.store.clickhouse.order import find_latest

ROWS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 5)),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4, unique=True),
)


@given(ROWS)
def test_the_row_of_the_highest_block_counts(blocks):
    rows = [(series, time, block) for (series, time), each in sorted(blocks.items()) for block in each]
    series = np.array([row[0] for row in rows], np.uint64)
    time = np.array([row[1] for row in rows], np.int64)
    block = np.array([row[2] for row in rows], np.uint64)
    keep = find_latest(series, time, block)
    if len(rows) == len(blocks):
        assert keep is None
    else:
        found = list(zip(series[keep].tolist(), time[keep].tolist(), block[keep].tolist(), strict=True))
        assert found == [(*key, max(each)) for key, each in sorted(blocks.items())]
