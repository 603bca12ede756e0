"""Tests of joined batches, against rows one after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.ingest.join import drop_unused, join, select
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.series_table import list_of, list_series, make_batch

SERIES = [Series("cpu.usage", job=f"j{at}") for at in range(6)]

rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=8)


@st.composite
def batches(draw):
    """Draw rows (series, time) and their batch: plain, with a list of keys, or with a series twice."""
    chosen = draw(rows)
    series = draw(st.permutations(SERIES))
    index = np.array([series.index(SERIES[at]) for at, _ in chosen], np.uint32)
    columns = index, np.array([time for _, time in chosen], np.int64), np.arange(len(chosen), dtype=np.float64)
    kind = draw(st.sampled_from(["plain", "listed", "twice"]))
    if kind == "listed":
        return chosen, make_batch(list_of(series), *columns)
    return chosen, SampleBatch([*series, *series[:2]] if kind == "twice" else series, *columns)


def rows_of(batch):
    assert len(set(batch.series)) == len(batch.series)
    keys = SeriesKeys.from_series(list(batch.series))
    assert (batch.keys.job.tolist(), batch.keys.series.tolist()) == (keys.job.tolist(), keys.series.tolist())
    assert batch.index.dtype == np.uint32
    return [(batch.series[at], time) for at, time in zip(batch.index.tolist(), batch.time.tolist(), strict=True)]


@given(st.lists(batches(), max_size=5))
def test_every_row_is_there_in_its_order(parts):
    joined = join([batch for _, batch in parts])
    assert rows_of(joined) == [(SERIES[at], time) for chosen, _ in parts for at, time in chosen]
    assert joined.value.tolist() == [float(at) for chosen, _ in parts for at in range(len(chosen))]


@given(batches(), st.sets(st.integers(0, 5)))
def test_some_series_are_taken_out_with_their_rows(part, expected):
    batch = join([part[1]])
    places = [at for at, series in enumerate(batch.series) if SERIES.index(series) in expected]
    assert rows_of(select(batch, places)) == [row for row in rows_of(batch) if SERIES.index(row[0]) in expected]
    assert rows_of(drop_unused(batch)) == rows_of(batch)
    assert set(drop_unused(batch).series) == {series for series, _ in rows_of(batch)}


def test_a_batch_whose_series_have_keys_stays_as_it_is():
    batch = join([SampleBatch(SERIES, np.array([0], np.uint32), np.array([1]), np.array([1.0]))])
    assert join([batch]) is batch
    assert list(list_series(batch)) == SERIES
    with pytest.raises(TypeError):
        list_series(SampleBatch(SERIES, batch.index, batch.time, batch.value))
