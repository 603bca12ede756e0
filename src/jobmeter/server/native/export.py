"""Metric answers as CSV and Parquet, piece by piece."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobmeter.query.request import Line, MetricResult
from jobmeter.server.native.endpoint import Stream

ROWS = 50_000
"""Rows of one piece."""
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("time", pa.int64()),
    ("metric", pa.string()),
    ("replica", pa.string()),
    ("node", pa.string()),
    ("device", pa.string()),
    ("value", pa.float64()),
]
_SCHEMA = pa.schema(_COLUMNS)


def csv(result: MetricResult, name: str) -> Stream:
    """``time,replica,device,value`` (with several metrics ``metric`` first), one row a point.

    Rows follow the lines of the answer, each by time. Names hold no comma and no quote, so nothing is quoted.
    """
    return Stream(_csv(result), "text/csv; charset=utf-8", attachment(name, "csv"))


def parquet(result: MetricResult, name: str) -> Stream:
    """Columns ``time metric replica node device value``, one row a point, a row group for each piece."""
    return Stream(_parquet(result), "application/vnd.apache.parquet", attachment(name, "parquet"))


def attachment(name: str, ending: str) -> tuple[tuple[str, str], ...]:
    """The header that names the file to a browser."""
    plain = "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "-_." else "_" for letter in name)
    return (("content-disposition", f'attachment; filename="{plain}.{ending}"'),)


def _pieces(result: MetricResult) -> Iterator[tuple[Line, int, int]]:
    for line in result.lines:
        for start in range(0, len(line.time), ROWS):
            yield line, start, min(start + ROWS, len(line.time))


def _csv(result: MetricResult) -> Iterator[bytes]:
    several = len(result.query.metrics) > 1
    yield ("metric,time,replica,device,value\n" if several else "time,replica,device,value\n").encode()
    for line, start, end in _pieces(result):
        times, values = line.time[start:end].tolist(), line.value[start:end].tolist()
        before = f"{line.metric}," if several else ""
        between = f",{line.replica},{line.device},"
        rows = [f"{before}{time}{between}{value!r}\n" for time, value in zip(times, values, strict=True)]
        yield "".join(rows).encode()


def _parquet(result: MetricResult) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd") as writer:
        for line, start, end in _pieces(result):
            names = [pa.repeat(name, end - start) for name in (line.metric, line.replica, line.node, line.device)]
            columns: list[pa.Array[Any]] = [pa.array(line.time[start:end]), *names, pa.array(line.value[start:end])]
            writer.write_table(pa.table(columns, schema=_SCHEMA))
            yield drain(sink)
    yield drain(sink)


def drain(sink: io.BytesIO) -> bytes:
    """What a writer has put into the sink since the last time."""
    # The writer only ever appends, and counts its own position: what is written may leave the buffer.
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece
