"""Raw readings as CSV, JSON lines and Parquet, piece by piece, by columns: no Python object for a sample.

What is the same for every sample of a series is made a text once, and written beside times and values by the kernel.
Without it Arrow joins them; the bytes of the joined texts, which lie one after the other, are the answer.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobmeter.kernel import rows as kernel
from jobmeter.model.batch import SampleColumns
from jobmeter.query.readings import Readings
from jobmeter.query.shape import Entry
from jobmeter.server.native.endpoint import Stream
from jobmeter.server.native.export import attachment, drain

ROWS = 65_536
"""Samples in one piece of text, about."""
_GROUP = 8 * ROWS
"""Samples in one row group of Parquet, about."""
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("time", pa.int64()),
    ("metric", pa.string()),
    ("replica", pa.string()),
    ("node", pa.string()),
    ("device", pa.string()),
    ("attempt", pa.int32()),
    ("labels", pa.string()),
    ("value", pa.float64()),
]
_SCHEMA = pa.schema(_COLUMNS)
# Its stub does not know that arrays and scalars may be joined to each other.
_join: Any = pc.binary_join_element_wise

Texts = Sequence[str]


def csv(found: Readings, name: str) -> Stream:
    """``time,replica,device,value``, one row a sample, and what else is needed to tell the series apart.

    ``metric`` comes first where the question has several names; ``node``, ``attempt`` and ``labels`` come last where a
    series has no replica, is of a later attempt, or has labels.
    """
    return Stream(_csv(found), "text/csv; charset=utf-8", attachment(name, "csv"))


def json(found: Readings, name: str) -> Stream:
    """A JSON object a line: time, metric, replica, node, device, attempt, labels (an object), value."""
    return Stream(_json(found), "application/x-ndjson", attachment(name, "jsonl"))


def parquet(found: Readings, name: str) -> Stream:
    """Columns ``time metric replica node device attempt labels value``, labels as the text of a JSON object."""
    return Stream(_parquet(found), "application/vnd.apache.parquet", attachment(name, "parquet"))


def _csv(found: Readings) -> Generator[bytes]:
    series = [entry.series for entry in found.entries]
    first = "metric," if len(found.names) > 1 else ""
    ends: list[tuple[str, Callable[[Entry], str]]] = []
    if any(not entry.replica for entry in found.entries):
        ends.append(("node", lambda entry: entry.series.node))
    if any(one.attempt for one in series):
        ends.append(("attempt", lambda entry: str(entry.series.attempt)))
    if any(one.labels for one in series):
        ends.append(("labels", lambda entry: _quoted(_labels(entry))))
    header = f"{first}time,replica,device,value{''.join(f',{name}' for name, _ in ends)}\n".encode()
    rows = _texts(
        found,
        [f"{entry.series.metric}," if first else "" for entry in found.entries],
        [f",{entry.replica},{entry.series.device}," for entry in found.entries],
        ["".join(f",{told(entry)}" for _, told in ends) + "\n" for entry in found.entries],
    )
    # Together with the first rows, so that what cannot even be begun is refused.
    yield header + next(rows, b"")
    yield from rows


def _json(found: Readings) -> Generator[bytes]:
    yield from _texts(
        found,
        ['{"time":'] * len(found.entries),
        [_members(entry) for entry in found.entries],
        ["}\n"] * len(found.entries),
    )


def _members(entry: Entry) -> str:
    one = entry.series
    told = {
        "metric": one.metric,
        "replica": entry.replica,
        "node": one.node,
        "device": one.device,
        "attempt": one.attempt,
        "labels": dict(one.labels),
    }
    return f',{msgspec.json.encode(told).decode()[1:-1]},"value":'


def _labels(entry: Entry) -> str:
    return msgspec.json.encode(dict(entry.series.labels)).decode() if entry.series.labels else ""


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if text else ""


def _texts(found: Readings, before: Texts, between: Texts, after: Texts) -> Generator[bytes]:
    """For each sample: what stands before its time, between time and value, and after the value, of its series."""
    if kernel.AVAILABLE:
        yield from _lines(found, kernel.Lines(list(zip(before, between, after, strict=True))))
    else:
        yield from _joined_texts(found, before, between, after)


def _lines(found: Readings, lines: kernel.Lines) -> Generator[bytes]:
    for block in found.blocks:
        yield from lines.add(block.index, block.time, block.value)
    yield lines.rest()


def _joined_texts(found: Readings, before: Texts, between: Texts, after: Texts) -> Generator[bytes]:
    """The same by Arrow."""
    parts = [_part(texts) for texts in (before, between, after)]
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


def _parquet(found: Readings) -> Generator[bytes]:
    named = [_coded([getattr(entry.series, name) for entry in found.entries]) for name in ("metric", "node", "device")]
    replica = _coded([entry.replica for entry in found.entries])
    labels = _coded([_labels(entry) for entry in found.entries])
    attempts = np.array([entry.series.attempt for entry in found.entries], np.int32)
    metric, node, device = named
    sink = BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd", compression_level=1) as writer:
        for block in batches(found.blocks, _GROUP):
            columns = {
                "time": pa.array(block.time),
                "metric": metric(block),
                "replica": replica(block),
                "node": node(block),
                "device": device(block),
                "attempt": pa.array(attempts[block.index]),
                "labels": labels(block),
                "value": pa.array(block.value),
            }
            writer.write_table(pa.table(columns, schema=_SCHEMA))
            yield drain(sink)
    yield drain(sink)


def _coded(texts: Texts) -> "Callable[[SampleColumns], pa.Array[Any]]":
    """The texts of a block's samples."""
    known: Any = pa.array(texts, pa.string())
    return lambda block: known.take(pa.array(block.index))


def batches(blocks: Iterator[SampleColumns], rows: int) -> Iterator[SampleColumns]:
    """The same samples in blocks of at least ``rows`` and less than twice that; only the last may be smaller."""
    kept: list[SampleColumns] = []
    size = 0
    for block in blocks:
        kept.append(block)
        size += len(block)
        if size >= rows:
            whole = _joined(kept)
            first = 0
            while size - first >= 2 * rows:
                yield _cut(whole, first, first + rows)
                first += rows
            yield _cut(whole, first, size)
            kept, size = [], 0
    if size:
        yield _joined(kept)


def _cut(block: SampleColumns, first: int, end: int) -> SampleColumns:
    return SampleColumns(block.index[first:end], block.time[first:end], block.value[first:end])


def _joined(blocks: Sequence[SampleColumns]) -> SampleColumns:
    if len(blocks) == 1:
        return blocks[0]
    index, time, value = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("index", "time", "value")
    )
    return SampleColumns(index, time, value)
