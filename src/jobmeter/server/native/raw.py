"""Raw samples as CSV, JSON lines and Parquet, in pieces and by columns, without a Python object per sample.

Text that all samples of a series share is built once, and the kernel writes it beside times and values.
"""

from collections.abc import Callable, Generator, Sequence

import msgspec

from jobmeter.kernel import rows as kernel
from jobmeter.query.readings import Readings
from jobmeter.query.selected_series import SeriesPart
from jobmeter.server.native.endpoint import Stream
from jobmeter.server.native.export import make_attachment_header

ROWS = 65_536
"""Approximate samples in one piece of text."""
Texts = Sequence[str]


def write_csv(found: Readings, name: str) -> Stream:
    """Write CSV ``time,replica,device,value``, one row per sample, with further columns to distinguish series.

    ``metric`` comes first if the question has several names. ``node``, ``attempt`` and ``labels`` come last if a series
    has no replica, belongs to a later attempt, or has labels.
    """
    return Stream(_csv(found), "text/csv; charset=utf-8", make_attachment_header(name, "csv"))


def write_json(found: Readings, name: str) -> Stream:
    """Write a JSON object per line: time, metric, replica, node, device, attempt, labels (an object), value."""
    return Stream(_json(found), "application/x-ndjson", make_attachment_header(name, "jsonl"))


def write_parquet(found: Readings, name: str) -> Stream:
    """Write Parquet ``time metric replica node device attempt labels value``; labels are JSON text."""
    from jobmeter.server.native import arrow  # noqa: PLC0415 - Arrow is 30 MiB, which most servers are never requested

    return Stream(arrow.write_samples(found), "application/vnd.apache.parquet", make_attachment_header(name, "parquet"))


def _csv(found: Readings) -> Generator[bytes]:
    series = [entry.series for entry in found.entries]
    first = "metric," if len(found.names) > 1 else ""
    ends: list[tuple[str, Callable[[SeriesPart], str]]] = []
    if any(not entry.replica for entry in found.entries):
        ends.append(("node", lambda entry: entry.series.node))
    if any(one.attempt for one in series):
        ends.append(("attempt", lambda entry: str(entry.series.attempt)))
    if any(one.labels for one in series):
        ends.append(("labels", lambda entry: _quote(encode_labels(entry))))
    header = f"{first}time,replica,device,value{''.join(f',{name}' for name, _ in ends)}\n".encode()
    rows = _texts(
        found,
        [f"{entry.series.metric}," if first else "" for entry in found.entries],
        [f",{entry.replica},{entry.series.device}," for entry in found.entries],
        ["".join(f",{writers(entry)}" for _, writers in ends) + "\n" for entry in found.entries],
    )
    # Send the header with the first rows, so that an export that fails at once can still be refused.
    yield header + next(rows, b"")
    yield from rows


def _json(found: Readings) -> Generator[bytes]:
    yield from _texts(
        found,
        ['{"time":'] * len(found.entries),
        [_members(entry) for entry in found.entries],
        ["}\n"] * len(found.entries),
    )


def _members(entry: SeriesPart) -> str:
    one = entry.series
    writers = {
        "metric": one.metric,
        "replica": entry.replica,
        "node": one.node,
        "device": one.device,
        "attempt": one.attempt,
        "labels": dict(one.labels),
    }
    return f',{msgspec.json.encode(writers).decode()[1:-1]},"value":'


def encode_labels(entry: SeriesPart) -> str:
    """Return the labels of a series as JSON text, empty without labels."""
    return msgspec.json.encode(dict(entry.series.labels)).decode() if entry.series.labels else ""


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if text else ""


def _texts(found: Readings, before: Texts, between: Texts, after: Texts) -> Generator[bytes]:
    """Write for each sample the texts of its series before the time, between time and value, and after the value."""
    lines = kernel.Lines(list(zip(before, between, after, strict=True)))
    for block in found.blocks:
        yield from lines.add(block.index, block.time, block.value)
    yield lines.take_rest()
