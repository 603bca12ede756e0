"""Reads the small files of a part that the engine itself cannot read any more.

Each function returns None if the file is missing or malformed: no answer relies on it. The formats are the engine's own
(MergeTreeDataPartWriterOnDisk, IMergeTreeDataPart::MinMaxIndex): ``count.txt`` is a number as text, ``minmax_time.idx``
two int64, ``primary.cidx`` compressed blocks of the key columns of each mark.
"""

import struct
from pathlib import Path

import zstandard

from jobmeter.model.time import MAX_TIME_MS, TimeRange

_BLOCK = struct.Struct("<16xBII")
"""Head of a compressed block: checksum, method, compressed bytes including these nine, bytes of the content."""
_ZSTD = 0x90
_HEAD_BYTES = 9
_MOST_BYTES = 2**26
_SAMPLE_KEY = struct.Struct("<QQq")
_KEY = {"samples": _SAMPLE_KEY, "minutes": _SAMPLE_KEY, "hours": _SAMPLE_KEY, "series": struct.Struct("<QQ")}
"""Formats of the key of one mark, the job first, for tables whose key has numbers alone."""


def read_row_count(part: Path) -> int | None:
    """Return the number of rows of the part."""
    try:
        return int((part / "count.txt").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def read_time_range(part: Path) -> TimeRange | None:
    """Return the time range of its rows, in milliseconds."""
    try:
        first, last = struct.unpack("<qq", (part / "minmax_time.idx").read_bytes())
    except (OSError, struct.error):
        return None
    return TimeRange(first, last + 1) if 0 <= first <= last < MAX_TIME_MS else None


def read_job_range(part: Path, table: str) -> tuple[int, int] | None:
    """Return the lowest and the highest job key of its rows."""
    key = _KEY.get(table.removesuffix("_local"))
    if key is None:
        return None
    try:
        marks = _decompress((part / "primary.cidx").read_bytes())
        lowest, highest = key.unpack_from(marks)[0], key.unpack_from(marks, len(marks) - key.size)[0]
    except (OSError, ValueError, struct.error, zstandard.ZstdError):
        return None
    return (lowest, highest) if lowest <= highest and not len(marks) % key.size else None


def _decompress(content: bytes) -> bytes:
    parts: list[bytes] = []
    at = total = 0
    while at < len(content):
        method, size, length = _BLOCK.unpack_from(content, at)
        total += length
        if method != _ZSTD or size <= _HEAD_BYTES or total > _MOST_BYTES:
            raise ValueError("not a block that is read here")
        begin = at + _BLOCK.size
        at = begin + size - _HEAD_BYTES
        parts.append(zstandard.ZstdDecompressor().decompress(content[begin:at], max_output_size=length))
    return b"".join(parts)
