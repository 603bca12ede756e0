"""Writer of journal segments in the format of earlier programs (``JMJ3``), which must stay readable forever."""

import struct
from zlib import crc32

import numpy as np

_HEAD = struct.Struct("<4sIQI")
HEAD_BYTES = _HEAD.size + 4
_KEYS, _SINGLE, _TOGETHER, _DESCRIPTORS = 1, 2, 4, 8


class Lists:
    """Lists of series that a segment has so far, by the identity of their keys."""

    def __init__(self):
        self._numbers = {}

    def number(self, keys):
        """Return the number of a list, and True if the record must contain its keys."""
        known = id(keys) in self._numbers
        number, _ = self._numbers.setdefault(id(keys), (len(self._numbers) + 1, keys))
        return number, not known


def record(magic, body, sections=1):
    """Return a record with that body."""
    head = _HEAD.pack(magic, sections, len(body), crc32(body))
    return head + struct.pack("<I", crc32(head)) + body


def encode(groups, lists):
    """Return one record of some groups of rows."""
    return record(b"JMJ3", b"".join(_section(rows, *lists.number(rows.keys)) for rows in groups), len(groups))


def _section(rows, number, written):
    runs, retention = len(rows.count), rows.retention
    first, last = rows.span
    lines = b"" if rows.descriptors is None else b"\n".join(rows.descriptors.lines)
    form = _KEYS * written | _SINGLE * (runs == len(rows)) | _TOGETHER * (first == last) | _DESCRIPTORS * bool(lines)
    days = retention.raw_days, retention.minute_days, retention.hour_days
    parts = [struct.pack("<IIHHHHQ", runs, len(rows), *days, form, number)]
    if written:
        parts += [rows.job.astype("<u8").tobytes(), rows.series.astype("<u8").tobytes()]
    parts += [struct.pack("<q", first) if first == last else rows.time.tobytes(), rows.value.tobytes()]
    if runs != len(rows):
        parts.append(_padded(rows.count.astype(np.uint32).tobytes()))
    if lines:
        parts.append(struct.pack("<Q", len(lines)) + _padded(lines))
    return b"".join(parts)


def _padded(content):
    return content + bytes(-len(content) % 8)
