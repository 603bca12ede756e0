"""Tests of splitting by shard and merging again, against the unsplit columns."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.batch import SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.store.shards.placement import find_shard
from jobmeter.store.shards.split import merge_blocks, merge_columns, renumber, split_batches, split_keys

SERIES = [Series("gpu.power", job=f"job-{number}" if number % 3 else "", node=f"n{number}") for number in range(12)]
ROWS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 50)), max_size=80)


def batch_of(rows):
    index, time = np.array([row[0] for row in rows], np.uint32), np.array([row[1] for row in rows], np.int64)
    return SampleBatch(SERIES, index, time, np.arange(len(rows), dtype=np.float64))


def rows_of(batch):
    return [
        (batch.series[index].id, time, value)
        for index, time, value in zip(batch.index.tolist(), batch.time.tolist(), batch.value.tolist(), strict=True)
    ]


@given(st.lists(ROWS, max_size=3), st.integers(1, 5))
def test_each_row_of_a_batch_goes_to_the_shard_of_its_series_in_order(several, count):
    found = split_batches([batch_of(rows) for rows in several], count)
    for shard in range(count):
        expected = [
            row
            for rows in several
            for row in rows_of(batch_of(rows))
            if find_shard(next(one.job_key or one.id for one in SERIES if one.id == row[0]), count) == shard
        ]
        assert [row for batch in found.get(shard, []) for row in rows_of(batch)] == expected
        assert all(batch.keys.series.tolist() == [one.id for one in batch.series] for batch in found.get(shard, []))


@given(ROWS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_merged_blocks_equal_the_whole(rows, count, generator):
    times = np.array(sorted(set(rows)), np.int64).reshape(-1, 2)
    whole = SampleColumns(times[:, 0].astype(np.uint32), times[:, 1], times[:, 1] / 4)
    keys = SeriesKeys.from_series(SERIES)
    streams, parts = {}, []
    for part in split_keys(keys, count):
        own = whole.select(np.isin(whole.index, part.places))
        inner = SampleColumns(np.searchsorted(part.places, own.index).astype(np.uint32), own.time, own.value)
        cuts = sorted(generator.randint(0, len(own)) for _ in range(3))
        edges = [0, *cuts, len(own)]
        blocks = [inner.select(slice(*edge)) for edge in pairwise(edges)]
        streams[part.shard] = iter([renumber(block, part) for block in blocks])
        parts.append(renumber(inner, part))
    merged = list(merge_blocks(streams, lambda some: {name: next(one, None) for name, one in some.items()}))
    for found in (SampleColumns.concatenate(merged), merge_columns(parts)):
        for name in ("index", "time", "value"):
            assert getattr(found, name).tolist() == getattr(whole, name).tolist()
