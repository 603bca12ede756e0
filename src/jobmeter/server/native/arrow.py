"""What Arrow does for exports: Parquet, and text where the kernel is missing."""

from collections.abc import Callable, Generator, Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobmeter.model.batch import SampleColumns
from jobmeter.query.readings import Readings
from jobmeter.query.request import MetricResult
from jobmeter.server.native.export import pieces
from jobmeter.server.native.raw import ROWS, Texts, labels

GROUP = 8 * ROWS
"""Samples in one row group of Parquet, about."""
_TIME: tuple[str, pa.DataType] = ("time", pa.int64())
_VALUE: tuple[str, pa.DataType] = ("value", pa.float64())
_NAMES: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in ("metric", "replica", "node", "device")]
_LINES = pa.schema([_TIME, *_NAMES, _VALUE])
_SAMPLES = pa.schema([_TIME, *_NAMES, ("attempt", pa.int32()), ("labels", pa.string()), _VALUE])
# Its stub does not know that arrays and scalars may be joined to each other.
_join: Any = pc.binary_join_element_wise


def lines(result: MetricResult) -> Iterator[bytes]:
    """The points of an answer as Parquet; see ``export``."""
    sink = BytesIO()
    with pq.ParquetWriter(sink, _LINES, compression="zstd") as writer:
        for line, start, end in pieces(result):
            names = [pa.repeat(name, end - start) for name in (line.metric, line.replica, line.node, line.device)]
            columns: list[pa.Array[Any]] = [pa.array(line.time[start:end]), *names, pa.array(line.value[start:end])]
            writer.write_table(pa.table(columns, schema=_LINES))
            yield _drain(sink)
    yield _drain(sink)


def texts(found: Readings, before: Texts, between: Texts, after: Texts) -> Generator[bytes]:
    """The samples as texts, where there is no kernel; see ``raw``."""
    parts = [_part(column) for column in (before, between, after)]
    for block in batches(found.blocks, ROWS):
        index: Any = pa.array(block.index)
        first, middle, last = (part if isinstance(part, pa.Scalar) else part.take(index) for part in parts)
        time, value = (pa.array(column).cast(pa.string()) for column in (block.time, block.value))
        yield _bytes(_join(first, time, middle, value, last, ""))


def _part(texts: Texts) -> "pa.Array[Any] | pa.Scalar[Any]":
    """One text for all where they are alike."""
    return pa.scalar(texts[0]) if len(set(texts)) == 1 else pa.array(texts, pa.string())


def _bytes(texts: "pa.Array[Any]") -> bytes:
    """All texts, one after the other."""
    buffers: list[Any] = texts.buffers()
    ends = np.frombuffer(buffers[1], np.int32, len(texts) + 1, texts.offset * 4)
    return bytes(buffers[2][int(ends[0]) : int(ends[-1])].to_pybytes())


def samples(found: Readings) -> Generator[bytes]:
    """The samples as Parquet; see ``raw``."""
    named = [_coded([getattr(entry.series, name) for entry in found.entries]) for name in ("metric", "node", "device")]
    replica = _coded([entry.replica for entry in found.entries])
    encoded_labels = _coded([labels(entry) for entry in found.entries])
    attempts = np.array([entry.series.attempt for entry in found.entries], np.int32)
    metric, node, device = named
    sink = BytesIO()
    with pq.ParquetWriter(sink, _SAMPLES, compression="zstd", compression_level=1) as writer:
        for block in batches(found.blocks, GROUP):
            columns = {
                "time": pa.array(block.time),
                "metric": metric(block),
                "replica": replica(block),
                "node": node(block),
                "device": device(block),
                "attempt": pa.array(attempts[block.index]),
                "labels": encoded_labels(block),
                "value": pa.array(block.value),
            }
            writer.write_table(pa.table(columns, schema=_SAMPLES))
            yield _drain(sink)
    yield _drain(sink)


def _coded(texts: Texts) -> "Callable[[SampleColumns], pa.Array[Any]]":
    """The texts of a block's samples."""
    array: Any = pa.array(texts, pa.string())
    return lambda block: array.take(pa.array(block.index))


def batches(blocks: Iterator[SampleColumns], rows: int) -> Iterator[SampleColumns]:
    """The same samples in blocks of at least ``rows`` and less than twice that; only the last may be smaller."""
    columns_read: list[SampleColumns] = []
    size = 0
    for block in blocks:
        columns_read.append(block)
        size += len(block)
        if size >= rows:
            whole = _joined(columns_read)
            first = 0
            while size - first >= 2 * rows:
                yield _cut(whole, first, first + rows)
                first += rows
            yield _cut(whole, first, size)
            columns_read, size = [], 0
    if size:
        yield _joined(columns_read)


def _cut(block: SampleColumns, first: int, end: int) -> SampleColumns:
    return SampleColumns(block.index[first:end], block.time[first:end], block.value[first:end])


def _joined(blocks: Sequence[SampleColumns]) -> SampleColumns:
    if len(blocks) == 1:
        return blocks[0]
    index, time, value = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("index", "time", "value")
    )
    return SampleColumns(index, time, value)


def _drain(sink: BytesIO) -> bytes:
    """What a writer has put into the sink since the last time."""
    # The writer only ever appends, and counts its own position: what is written may leave the buffer.
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece
