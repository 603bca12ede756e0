"""Tests of frames written from columns: the server's own decoder reads exactly the rows."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.cli.loading import frames
from jobmeter.cli.loading.frames import Encoder, make_frame
from jobmeter.cli.loading.rows import BadRowError, RowNames, Rows
from jobmeter.model.series import Series
from jobmeter.wire.native.decode import decode

KEYS = ("metric", "cluster", "node", "device", "job_id", "replica")


def rows_of(samples: list[tuple[Any, ...]]) -> Rows:
    """Return rows of (metric, cluster, node, device, job, replica, time, value)."""
    names = {}
    for at, column in enumerate(KEYS):
        values = [*sorted({sample[at] for sample in samples}), "unused"]
        codes = np.array([values.index(sample[at]) for sample in samples], np.int32)
        names[column] = RowNames(codes, values)
    return Rows(
        names=names,
        time=np.array([sample[6] for sample in samples], np.int64),
        value=np.array([sample[7] for sample in samples], np.float64),
        place=lambda row: f"line {row + 2}",
    )


def decoded(body: bytes, project: str = "own") -> list[tuple[Series, int, float]]:
    found = []
    for batch in decode(body, project).batches:
        rows = zip(batch.index.tolist(), batch.time.tolist(), batch.value.tolist(), strict=True)
        found += [(batch.series[index], time, value) for index, time, value in rows]
    return found


def expected(samples, project="own"):
    return [
        # A job's row without a replica belongs to its node, as in vendors' APIs, or else to worker-0.
        (Series(metric, project, cluster, node, device, job, replica or node or "worker-0"), time, value)
        for metric, cluster, node, device, job, replica, time, value in samples
    ]


few = st.sampled_from(["a", "b1", "c-2"])
sample = st.tuples(
    st.sampled_from(["cpu.usage", "gpu.utilization", "app.x"]),
    st.one_of(st.just(""), few),
    st.one_of(st.just(""), few),
    st.one_of(st.just(""), few),
    few,
    st.one_of(st.just(""), few),
    st.integers(0, 4_000_000_000_000),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(st.lists(sample, min_size=1, max_size=60), st.booleans(), st.integers(1, 7))
def test_every_row_arrives_once_in_the_order_of_its_series(samples, compress, most):
    frames_before, frames.MAX_SERIES = frames.MAX_SERIES, most
    try:
        chunks = list(Encoder().encode(rows_of(samples)))
    finally:
        frames.MAX_SERIES = frames_before
    got = [row for chunk in chunks for row in decoded(make_frame(chunk.payload, compress=compress))]
    wanted = expected(samples)
    assert sorted(map(repr, got)) == sorted(map(repr, wanted))
    for series in {row[0] for row in wanted}:
        assert [row for row in got if row[0] == series] == [row for row in wanted if row[0] == series]
    assert all(chunk.series <= most for chunk in chunks)


def test_many_series_are_sorted_where_they_cannot_be_counted(monkeypatch):
    samples = [("cpu.usage", "", f"n{i}", f"d{i % 7}", f"j{i % 911}", f"r{i}", i, float(i)) for i in range(3000)]
    monkeypatch.setattr(frames, "_DENSE", 100)
    [chunk] = Encoder().encode(rows_of(samples))
    assert sorted(decoded(make_frame(chunk.payload, compress=False)), key=lambda row: row[1]) == expected(samples)
    assert chunk.jobs == {f"j{i}" for i in range(911)}


def test_a_project_is_written_only_when_it_was_requested():
    samples = [("cpu.usage", "", "", "", "j", "r", 1, 1.0)]
    for project, read_as in (("", "own"), ("theirs", "theirs")):
        [chunk] = Encoder(project).encode(rows_of(samples))
        assert decoded(make_frame(chunk.payload, compress=False)) == expected(samples, read_as)


def test_a_row_may_name_its_project():
    rows = rows_of([("cpu.usage", "", "", "", "j", "r", n, 1.0) for n in range(3)])
    projects = RowNames(np.array([0, 1, 2], np.int32), ["a", "", "b"])
    rows = dataclasses.replace(rows, names={**rows.names, "project": projects})
    [chunk] = Encoder("theirs").encode(rows)
    found = {time: series.project for series, time, _ in decoded(make_frame(chunk.payload, compress=False))}
    assert found == {0: "a", 1: "theirs", 2: "b"}


def test_rows_with_and_without_a_replica_may_be_one_series():
    samples = [("cpu.usage", "", "", "", "j", name, at, 1.0) for at, name in enumerate(["", "worker-0", ""])]
    [chunk] = Encoder().encode(rows_of(samples))
    assert chunk.series == 1
    assert decoded(make_frame(chunk.payload, compress=False)) == expected(samples)


BAD = [
    (("no metric", "", "", "", "j", "", 1, 1.0), "metric"),
    (("cpu.usage", "", "n/1", "", "j", "", 1, 1.0), "node"),
    (("cpu.usage", "", "", "", "../j", "", 1, 1.0), "job_id"),
    (("cpu.usage", "", "", "", "", "r", 1, 1.0), "job_id"),
]


@pytest.mark.parametrize(("bad", "column"), BAD)
def test_an_illegal_name_is_named_or_skipped(bad, column):
    good = ("cpu.usage", "", "", "", "j", "", 1, 1.0)
    with pytest.raises(BadRowError, match=f"^line 4, column {column}: "):
        list(Encoder().encode(rows_of([good, good, bad, bad])))
    encoder = Encoder(skip_bad=True)
    [chunk] = encoder.encode(rows_of([good, good, bad, bad]))
    assert (len(chunk.rows), encoder.skipped) == (2, 2)


def test_only_bad_rows_make_no_chunk():
    encoder = Encoder(skip_bad=True)
    assert list(encoder.encode(rows_of([BAD[0][0]]))) == []
    assert encoder.skipped == 1
