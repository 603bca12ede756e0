"""Samples that are durable but not in the engine yet, in the form that readers need."""

from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np

from jobmeter.kernel import sort_dedupe as kernel
from jobmeter.kernel.sort_dedupe import SeriesSlices
from jobmeter.model.batch import BucketColumns, SampleColumns, SeriesKeys, mark_last_rows
from jobmeter.model.time import TimeRange
from jobmeter.store.clickhouse import imported
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.rows import JournalBlock, list_descriptors

PIECE_ROWS = 65_536
"""Rows of one piece for a reader, about."""


class Pending:
    """A snapshot of the rows that may not be in the engine, in the order in which they were stored."""

    def __init__(
        self, sections: Sequence[JournalBlock], imported_series: imported.ImportedSeries = imported.NOTHING
    ) -> None:
        self._sections = sections
        self._imported = imported_series

    def list_descriptors(self) -> list[Descriptors]:
        """Return the descriptors of series that the engine may not have yet."""
        return list_descriptors([section.rows for section in self._sections])

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, step_ms: int) -> BucketColumns | None:
        """Return all samples of some series in buckets, the engine's too; see ``ImportedSeries.read_buckets``."""
        sections = [section for section in self._sections if section.meets(span)]
        return self._imported.read_buckets(sections, keys, span, step_ms)

    def select_samples(self, keys: SeriesKeys, span: TimeRange) -> SampleColumns:
        """Return the samples of some series in a span, sorted by (index, time), each once."""
        found = [runs for section in self._sections if (runs := section.select(keys, span)) is not None]
        if not found:
            return SampleColumns.make_empty()
        runs = found[0] if len(found) == 1 else SeriesSlices(*map(np.concatenate, zip(*found, strict=True)))
        return _sort_runs(runs, len(keys))

    def split(self, keys: SeriesKeys, span: TimeRange) -> Iterator[SampleColumns]:
        """Yield these samples in pieces of about ``PIECE_ROWS`` rows, and at least one series.

        Only the current piece is copied and sorted. Blocks without these series are released.
        """
        sections = [section for section in self._sections if section.meets(span)]
        rows = sum(len(section.rows) for section in sections)
        if rows > PIECE_ROWS:
            counts = [section.count(keys) for section in sections]
            sections, rows = list(compress(sections, counts)), sum(counts)
        chosen = Pending(sections)
        together = max(1, len(keys) // (1 + rows // PIECE_ROWS))
        for first in range(0, len(keys) if rows else 0, together):
            some = slice(first, first + together)
            found = chosen.select_samples(keys.select(some), span)
            if len(found):
                yield SampleColumns(found.index + np.uint32(first), found.time, found.value) if first else found

    def find_previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns:
        """Return each series' last sample before a time; series without one are left out."""
        found = self.select_samples(keys, TimeRange(0, max(0, before_ms)))
        return found.select(mark_last_rows(found.index))

    def list_times(self, jobs: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield job key, first and last time of the rows of some jobs; a job may repeat."""
        job_keys = np.array(sorted(set(jobs)), np.uint64)
        for section in self._sections:
            rows = section.rows
            starts = rows.find_starts()
            least = np.minimum.reduceat(rows.time, starts)
            most = np.maximum.reduceat(rows.time, starts)
            chosen = np.flatnonzero(np.isin(rows.job, job_keys))
            yield from zip(rows.job[chosen].tolist(), least[chosen].tolist(), most[chosen].tolist(), strict=True)


NOTHING = Pending(())


def merge_streams(stream: Iterator[SampleColumns], pieces: Iterator[SampleColumns]) -> Iterator[SampleColumns]:
    """Merge a stream with pieces, both sorted by (index, time).

    A row of a piece replaces an equal one of the stream.
    """
    over = next(pieces, None)
    for block in stream:
        parts = [block]
        while over is not None and (reached := _position(over, int(block.index[-1]), int(block.time[-1]))):
            if reached < len(over):
                parts.append(_cut(over, slice(reached)))
                over = _cut(over, slice(reached, None))
                break
            if int(over.index[-1]) < int(block.index[0]):
                yield over
            else:
                parts.append(over)
            over = next(pieces, None)
        yield _merge_parts(parts) if len(parts) > 1 else block
    if over is not None:
        yield over
        yield from pieces


def _position(columns: SampleColumns, index: int, time: int) -> int:
    """Count the rows at or before (index, time)."""
    first, last = np.searchsorted(columns.index, (index, index + 1)).tolist()
    return int(first + np.searchsorted(columns.time[first:last], time, "right"))


def _cut(columns: SampleColumns, part: slice) -> SampleColumns:
    return SampleColumns(columns.index[part], columns.time[part], columns.value[part])


def _merge_parts(parts: Sequence[SampleColumns]) -> SampleColumns:
    """Merge the rows of all parts in order. Of equal samples the one of the later part stays."""
    joined = SampleColumns.concatenate(parts)
    runs = SeriesSlices(joined.index.astype(np.int64), np.ones(len(joined), np.int64), joined.time, joined.value)
    return _sort_runs(runs, int(joined.index.max()) + 1)


def _sort_runs(runs: SeriesSlices, series: int) -> SampleColumns:
    """Sort the rows by (index, time), the index being the run's slot. Of equal samples the last one stays."""
    ordered = kernel.sort_dedupe([runs], series, origin=False)
    return SampleColumns(np.repeat(np.arange(series, dtype=np.uint32), ordered.sizes), ordered.time, ordered.value)
