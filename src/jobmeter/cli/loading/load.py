"""Convert files to request bodies, with counts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from jobmeter.cli.loading.files import Format, read
from jobmeter.cli.loading.frames import Chunk, Encoder, make_frame
from jobmeter.cli.loading.rows import RowSource
from jobmeter.model.record import JobRecord, Records
from jobmeter.wire.native.encode import make_records_frame

RECORDS_PER_REQUEST = 1_000
"""Most job records in one request."""
BYTES_PER_REQUEST = 4 * 2**20
"""Size at which a request gets no further record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """Options of an import. ``project`` empty: the key's own."""

    files: Sequence[str]
    form: Format | None = None
    project: str = ""
    compress: bool = False
    batch_rows: int = 500_000
    skip_bad: bool = False


@dataclass(slots=True)
class Tally:
    """Counts of the rows read so far. Times are epoch milliseconds, None before the first row."""

    rows: int = 0
    skipped: int = 0
    records: int = 0
    jobs: set[str] = field(default_factory=set)
    first_ms: int | None = None
    last_ms: int | None = None

    def count(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self.rows += len(chunk.rows)
        self.jobs |= chunk.jobs
        first, last = int(chunk.rows.time.min()), int(chunk.rows.time.max())
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)


def iterate_bodies(
    plan: ImportPlan, tally: Tally, progress: Callable[[int], None]
) -> Iterator[tuple[bytes, Chunk | None]]:
    """Yield the bodies of the requests, file after file; each with its chunk, if any.

    Raises as ``files.read``, before any rows of the block with the bad row.
    """
    encoder = Encoder(plan.project, plan.skip_bad)
    for name in plan.files:
        source = RowSource("standard input" if name == "-" else name, plan.skip_bad, plan.batch_rows)
        for block in read(name, plan.form, source, progress):
            yield from _records(block.records, plan.project, tally)
            tally.skipped += block.skipped
            if block.rows is None:
                continue
            # Find bad names anywhere in the block before its first rows are sent.
            before = encoder.skipped
            chunks = [chunk for part in block.rows.split(plan.batch_rows) for chunk in encoder.encode(part)]
            tally.skipped += encoder.skipped - before
            for chunk in chunks:
                tally.count(chunk)
                yield make_frame(chunk.payload, compress=plan.compress), chunk


def _records(records: Sequence[JobRecord], project: str, tally: Tally) -> Iterator[tuple[bytes, None]]:
    for part in _parts(records):
        tally.records += len(part)
        tally.jobs |= {record.job_id for record in part}
        owned = [
            record if record.project or not project else msgspec.structs.replace(record, project=project)
            for record in part
        ]
        yield make_records_frame(Records(jobs=owned)), None


def _parts(records: Sequence[JobRecord]) -> Iterator[list[JobRecord]]:
    part: list[JobRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(msgspec.json.encode(record))
        if len(part) == RECORDS_PER_REQUEST or size >= BYTES_PER_REQUEST:
            yield part
            part, size = [], 0
    if part:
        yield part
