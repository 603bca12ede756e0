"""Exports as Parquet."""

from collections.abc import Callable, Generator, Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobmeter.model.batch import SampleColumns
from jobmeter.query.readings import Readings
from jobmeter.query.request import MetricResult
from jobmeter.query.selected_series import SeriesPart
from jobmeter.server.native import raw
from jobmeter.server.native.export import split_lines
from jobmeter.server.native.raw import Texts, encode_labels

GROUP = 2 * raw.ROWS
"""Approximate samples in one row group of Parquet."""
_TEXTS = pa.dictionary(pa.int32(), pa.string())
_TIME: tuple[str, pa.DataType] = ("time", pa.int64())
_VALUE: tuple[str, pa.DataType] = ("value", pa.float64())
_NAMES: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in ("metric", "replica", "node", "device")]
_LINES = pa.schema([_TIME, *_NAMES, _VALUE])
_SAMPLES: list[tuple[str, pa.DataType]] = [
    _TIME, *_NAMES, ("attempt", pa.int32()), ("labels", pa.string()), _VALUE
]  # fmt: skip


def write_lines(result: MetricResult) -> Iterator[bytes]:
    """Write the points of an answer as Parquet; see ``export``."""
    sink = BytesIO()
    with pq.ParquetWriter(sink, _LINES, compression="zstd") as writer:
        for line, start, end in split_lines(result):
            names = [pa.repeat(name, end - start) for name in (line.metric, line.replica, line.node, line.device)]
            columns: list[pa.Array[Any]] = [pa.array(line.time[start:end]), *names, pa.array(line.value[start:end])]
            writer.write_table(pa.table(columns, schema=_LINES))
            yield _drain(sink)
    yield _drain(sink)


def write_samples(found: Readings) -> Generator[bytes]:
    """Write the samples as Parquet; see ``raw``."""
    columns = _columns(found.entries)
    sink = BytesIO()
    # Repeated texts are dictionary encoded. Without Arrow's schema in the file a reader gets plain texts.
    schema = pa.schema([(name, _TEXTS if field == pa.string() else field) for name, field in _SAMPLES])
    with pq.ParquetWriter(sink, schema, compression="zstd", compression_level=1, store_schema=False) as writer:
        for block in regroup_samples(found.blocks, GROUP):
            # Release each group before its bytes are sent.
            writer.write_table(pa.table([column(block) for column in columns], schema=schema))
            yield _drain(sink)
    yield _drain(sink)


def _columns(entries: Sequence[SeriesPart]) -> "Sequence[Callable[[SampleColumns], pa.Array[Any]]]":
    """Return functions that build the columns of ``_SAMPLES`` from the samples of a block."""
    attempts = np.array([entry.series.attempt for entry in entries], np.int32)
    return [
        lambda block: pa.array(block.time),
        _make_encoder([entry.series.metric for entry in entries]),
        _make_encoder([entry.replica for entry in entries]),
        _make_encoder([entry.series.node for entry in entries]),
        _make_encoder([entry.series.device for entry in entries]),
        lambda block: pa.array(attempts[block.index]),
        _make_encoder([encode_labels(entry) for entry in entries]),
        lambda block: pa.array(block.value),
    ]


def _make_encoder(texts: Texts) -> "Callable[[SampleColumns], pa.Array[Any]]":
    """Return a function that dictionary-encodes the texts of a block's samples."""
    different = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers, dictionary = np.array([different[text] for text in texts], np.int32), pa.array(different, pa.string())
    return lambda block: pa.DictionaryArray.from_arrays(numbers[block.index], dictionary)


def regroup_samples(blocks: Iterator[SampleColumns], rows: int) -> Iterator[SampleColumns]:
    """Regroup samples into blocks of ``rows`` to twice that; only the last block may be smaller."""
    columns_read: list[SampleColumns] = []
    size = 0
    for block in blocks:
        columns_read.append(block)
        size += len(block)
        if size >= rows:
            whole = SampleColumns.concatenate(columns_read)
            first = 0
            while size - first >= 2 * rows:
                yield _cut(whole, first, first + rows)
                first += rows
            yield _cut(whole, first, size)
            columns_read, size = [], 0
    if size:
        yield SampleColumns.concatenate(columns_read)


def _cut(block: SampleColumns, first: int, end: int) -> SampleColumns:
    return SampleColumns(block.index[first:end], block.time[first:end], block.value[first:end])


def _drain(sink: BytesIO) -> bytes:
    """Take the bytes that the writer has put into the sink since the last call."""
    # The writer only appends and counts its own position, so written bytes may leave the buffer.
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece
