"""Tests of the table of series numbers, compared with a dictionary."""

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel.number_table import NumberTable, allocate_zeros

IDS = st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1))
STEPS = st.lists(st.tuples(st.booleans(), st.dictionaries(IDS, st.integers(0, 2**31 - 2), max_size=60)), max_size=12)


def arrays(numbers):
    return np.array(list(numbers), np.uint64), np.array(list(numbers.values()), np.int64)


@given(STEPS, st.sampled_from([0, 800]))
def test_a_table_finds_each_series_that_was_put_and_not_removed(steps, most):
    table, truth = NumberTable(most), dict[int, int]()
    for put, numbers in steps:
        ids, values = arrays(numbers)
        if put:
            table.put(ids, values)
            truth |= numbers
        else:
            table.remove(ids)
            truth = {one: number for one, number in truth.items() if one not in numbers}
        asked = [*truth, *numbers, 2**63 + 5]
        assert table.find(np.array(asked, np.uint64)).tolist() == [truth.get(one, -1) for one in asked]
        assert len(table) == len(truth)


@pytest.mark.parametrize("most", [0, 40_000])
def test_a_table_grows_and_every_second_series_is_removed_in_any_order(most):
    draw = np.random.default_rng(1)
    table, ids = NumberTable(most), draw.permutation(np.arange(40_000, dtype=np.uint64))
    for part in np.split(ids, 8):
        table.put(part, part.astype(np.int64))
    table.remove(draw.permutation(ids[::2]))
    assert len(table) == 20_000
    assert (table.find(ids[::2]) == -1).all()
    assert (table.find(ids[1::2]) == ids[1::2].astype(np.int64)).all()
    table.put(ids[::2], np.zeros(20_000, np.int64))
    assert (table.find(ids) == np.where(np.arange(40_000) % 2, ids.astype(np.int64), 0)).all()


def _resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer has an allocator of its own")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_zeros_take_memory_where_they_are_written_even_after_the_c_library_has_freed_larger_blocks():
    trim = ctypes.CDLL(None).malloc_trim
    del (larger := [bytearray(b"1" * (size * 2**20)) for size in (24, 20)])[:]  # glibc takes later ones from the heap
    trim(0)
    before = _resident()
    del (freed := [bytearray(b"1" * 2**23) for _ in range(4)])[:]
    arrays = [allocate_zeros(2**20, np.int64) for _ in range(4)]
    trim(0)
    assert _resident() < before + 2**20
    arrays[0][[0, -1]] = 7
    assert [int(one.sum()) for one in arrays] == [14, 0, 0, 0]
    assert allocate_zeros(3, np.bool_).tolist() == [False] * 3
    assert larger == freed == []
