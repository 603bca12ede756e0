"""Convert rows to sample frames with NumPy, without an object per row: docs/reference/wire-format.md."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import zstandard

from jobmeter.cli.loading.rows import NAME_COLUMNS, BadRowError, Int32s, Rows
from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Int64s
from jobmeter.model.series import DEFAULT_PROJECT, Series, check_series, choose_member_name
from jobmeter.wire.native.encode import encode_descriptor
from jobmeter.wire.native.frame import HEADER, MAGIC, VERSION, Codec, FrameKind

MAX_SERIES = 50_000
"""Most series in one frame: half of a server's default limit."""
_DENSE = 2**22
"""Codes below this are counted in an array; larger ones are sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Content of one request: the payload of a samples frame, its rows, and their jobs."""

    payload: bytes
    rows: Rows
    jobs: frozenset[str]
    series: int


class Encoder:
    """Converts rows into payloads. Caches the descriptors of series."""

    def __init__(self, project: str = "", skip_bad: bool = False) -> None:
        self._project = project
        self._skip_bad = skip_bad
        self._numbers: dict[tuple[str, ...], bytes] = {}
        self.skipped = 0
        """Rows skipped because of an illegal name."""

    def encode(self, rows: Rows) -> Iterator[Chunk]:
        """Yield payloads of all rows, each with at most ``MAX_SERIES`` series.

        Raises BadRowError for an illegal name, unless such rows are skipped.
        """
        if not len(rows):
            return
        codes, keys = _series_of(rows)
        descriptors = [self._describe(key) for key in keys]
        problems = {at: found for at, found in enumerate(descriptors) if isinstance(found, InvalidRequestError)}
        if problems:
            yield from self.encode(self._drop_bad_rows(rows, codes, problems))
            return
        if len(keys) > MAX_SERIES:
            for part in rows.split(-(-len(rows) // 2)):
                yield from self.encode(part)
            return
        texts = [text for text in descriptors if isinstance(text, bytes)]
        # Rows with and without the name of a replica may be one series.
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        if len(numbers) < len(texts):
            codes = np.array([numbers[text] for text in texts], np.int64)[codes]
        payload = _payload(list(numbers), codes, rows)
        jobs = frozenset(key[NAME_COLUMNS.index("job_id")] for key in keys) - {""}
        yield Chunk(payload, rows, jobs, len(numbers))

    def _describe(self, key: tuple[str, ...]) -> bytes | InvalidRequestError:
        number = self._numbers.get(key)
        if number is not None:
            return number
        metric, project, cluster, node, device, job, replica = key
        project = project or self._project
        replica = choose_member_name(replica, node) if job else replica
        try:
            check_series(Series(metric, project or DEFAULT_PROJECT, cluster, node, device, job, replica))
        except InvalidRequestError as error:
            return error
        if not job and not node:
            return InvalidRequestError("a sample needs a job or a node, but both are empty", "job_id")
        if len(self._numbers) > 1_000_000:
            self._numbers.clear()
        own = Series(metric, project, cluster, node, device, job, replica)
        text = self._numbers[key] = encode_descriptor(own)
        return text

    def _drop_bad_rows(self, rows: Rows, codes: Int64s, problems: dict[int, InvalidRequestError]) -> Rows:
        bad = np.isin(codes, list(problems))
        if not self._skip_bad:
            row = int(np.flatnonzero(bad)[0])
            problem = problems[int(codes[row])]
            column = "job_id" if problem.field in {"job", "job_id"} else problem.field
            raise BadRowError(rows.place(row), column, problem.message)
        self.skipped += int(bad.sum())
        return rows.filter(~bad)


def make_frame(payload: bytes, *, compress: bool) -> bytes:
    """Wrap a payload in a samples frame, optionally compressed with Zstandard."""
    sent = zstandard.ZstdCompressor(level=1).compress(payload) if compress else payload
    codec = Codec.ZSTD if compress else Codec.NONE
    head = HEADER.pack(MAGIC, VERSION, FrameKind.SAMPLES, codec, bytes(3), len(sent), len(payload), zlib.crc32(sent))
    return head + sent


def _series_of(rows: Rows) -> tuple[Int64s, list[tuple[str, ...]]]:
    """Return the series number of each row (int64[n], from 0), and the names of each series."""
    codes: Int64s = np.zeros(len(rows), np.int64)
    keys: list[tuple[str, ...]] = [()]
    for name in NAME_COLUMNS:
        column = rows.names.get(name)
        if column is None:
            keys = [(*key, "") for key in keys]
            continue
        width = max(len(column.values), 1)
        codes, present = _renumber_codes(codes * width + column.codes, len(keys) * width)
        keys = [(*keys[code // width], column.values[code % width]) for code in present.tolist()]
    return codes, keys


def _renumber_codes(codes: Int64s, bound: int) -> tuple[Int64s, Int64s]:
    """Renumber codes from 0 without gaps. Also returns the old code of each new one, ascending."""
    if bound > _DENSE:
        present, renumbered = np.unique(codes, return_inverse=True)
        return renumbered.astype(np.int64), present
    present = np.flatnonzero(np.bincount(codes, minlength=bound))
    numbers = np.zeros(bound, np.int64)
    numbers[present] = np.arange(len(present))
    return numbers[codes], present


def _payload(descriptors: list[bytes], codes: Int64s, rows: Rows) -> bytes:
    count = len(descriptors)
    counts = np.bincount(codes, minlength=count).astype("<u4")
    # A stable sort preserves the order of the file within a series; for 16 bits it is a radix sort.
    order: Int32s | Int64s = np.argsort(codes.astype(np.uint16) if count <= 2**16 else codes, kind="stable")
    parts = [struct.pack("<II", count, len(rows))]
    for text in descriptors:
        parts += (struct.pack("<I", len(text)), text)
    parts += (counts.tobytes(), rows.time[order].astype("<i8").tobytes(), rows.value[order].astype("<f8").tobytes())
    return b"".join(parts)
