"""Split the range of a query by source, read the samples of each part, and make buckets of them."""

from collections.abc import Hashable, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import NEVER, Bools, BucketColumns, References, SampleColumns, SeriesKeys
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, SECOND, TimeRange, ceil_to, cut_to_steps, floor_to
from jobmeter.query.meter import Meter
from jobmeter.query.reduce import build_buckets, coarsen, compute_growth, merge
from jobmeter.query.rollup_cache import RollupCache, Trusted, widen_span
from jobmeter.store.base import Store, Tier
from jobmeter.store.cache import Cache

_BUCKETS_A_POINT = 4
_INTERVAL_MS = 10 * SECOND
RAW_IS_QUICK = 2 * HOUR
"""Length up to which reading raw samples is faster than looking up rolled-up hours."""

WHOLE_MS = ceil_to(MAX_TIME_MS + 1, DAY)
"""Step of one bucket for any range, which every roll-up can fill."""


Last = tuple[Bools, References]
"""Counter flags of the series, and the last sample of each."""

Closed = tuple[Sequence[TimeRange], Hashable | None]
"""Hours that are rolled up, and the revision for which this holds."""


class Segment(msgspec.Struct, frozen=True):
    """Part of the range with its source: a roll-up tier, or raw samples (None)."""

    span: TimeRange
    tier: Tier | None


class Piece(msgspec.Struct, frozen=True):
    """Part of a source: raw samples, or roll-up rows of a tier (with their own increases).

    Without a tier, buckets come from raw samples in the query's step, counted from the given references.
    """

    span: TimeRange
    tier: Tier | None
    columns: SampleColumns | BucketColumns


def estimate_rows(keys: SeriesKeys, span: TimeRange, every_ms: int = _INTERVAL_MS) -> int:
    """Estimate the rows of a read: samples at the usual interval, or rows of a tier."""
    return len(keys) * (span.length_ms // every_ms)


class Source:
    """Samples of a store: from roll-ups if they answer exactly, else raw.

    Rows of roll-ups are cached per revision of the store.
    """

    def __init__(self, store: Store, cache: Cache) -> None:
        self.store = store
        self._closed = RollupCache(cache)

    def read_pieces(
        self, keys: SeriesKeys, span: TimeRange, step_ms: int, meter: Meter, last: Last | None = None
    ) -> Iterator[Piece]:
        """Yield all data of series in the span, each sample once, the parts of one series in order of time.

        Roll-up rows are used only if their buckets fill the buckets of ``step_ms``. With ``last``, raw samples may come
        as buckets; the references are then updated, and the caller updates them over every other piece before it takes
        the next.
        """
        recent = self._read_recent(keys, span, step_ms, last) if span.length_ms <= RAW_IS_QUICK else None
        if recent is not None:
            meter.count(int(recent.count.sum()), None)
            yield Piece(span, None, recent)
            return
        fits = any(step_ms % tier == 0 for tier in Tier)
        # Raw samples within an hour may be cached if that hour is rolled up.
        closes = fits or span.length_ms <= HOUR
        jobs = keys.list_jobs() if closes else []
        revision = self.store.get_revision(jobs) if closes else None
        if revision is None and span.length_ms <= RAW_IS_QUICK:
            fits = closes = False
        rolled = self.store.find_rolled_up_ranges(jobs, widen_to_hours(span)) if closes else []
        for segment in split_range(span, step_ms, rolled) if fits else (Segment(span, None),):
            recent = self._read_recent(keys, segment.span, step_ms, last) if segment.tier is None else None
            if recent is not None:
                meter.count(int(recent.count.sum()), None)
                yield Piece(segment.span, None, recent)
            elif segment.tier is None:
                yield from self._read_unrolled(keys, segment.span, step_ms, last, (rolled, revision), meter)
            else:
                around = next(part for part in rolled if part.intersect(segment.span) is not None)
                trusted = None if revision is None else Trusted(around, revision)
                for rows in self._read_rolled_up(keys, segment.span, segment.tier, step_ms, trusted, meter):
                    meter.count(len(rows), segment.tier)
                    yield Piece(segment.span, segment.tier, rows)

    def _read_recent(self, keys: SeriesKeys, span: TimeRange, step_ms: int, last: Last | None) -> BucketColumns | None:
        memory = self.store.memory
        return None if last is None or memory is None else memory.read_buckets(keys, span, step_ms, *last)

    def _read_unrolled(
        self, keys: SeriesKeys, span: TimeRange, step_ms: int, last: Last | None, closed: Closed, meter: Meter
    ) -> Iterator[Piece]:
        """Yield the samples of a span: imported hours as buckets if they are in memory, the rest raw."""
        middle, columns = self._read_imported(keys, span, step_ms, last)
        for part in (TimeRange(span.start_ms, middle.start_ms), TimeRange(middle.end_ms, span.end_ms)):
            for block in self._read_raw(keys, part, closed, meter) if part.length_ms else ():
                meter.count(len(block), None)
                yield Piece(part, None, block)
            if columns is not None:
                meter.count(int(columns.count.sum()), None)
                yield Piece(middle, None, columns)
                columns = None

    def _read_imported(
        self, keys: SeriesKeys, span: TimeRange, step_ms: int, last: Last | None
    ) -> tuple[TimeRange, BucketColumns | None]:
        """Return a part of the span and its buckets; an empty part if no buckets are in memory."""
        # Increases of counters need the sample before each bucket.
        if last is not None and not last[0].any():
            for part in dict.fromkeys((span, cut_to_steps(span, HOUR))):
                found = self.store.read_imported_buckets(keys, part, step_ms) if part.length_ms else None
                if found is not None:
                    return part, found
        return TimeRange(span.start_ms, span.start_ms), None

    def _read_raw(self, keys: SeriesKeys, span: TimeRange, closed: Closed, meter: Meter) -> Iterator[SampleColumns]:
        """Read raw samples. In rolled-up hours they change only with the revision, so those are cached."""
        rolled, revision = closed
        whole = widen_span(keys, span)
        over = span.end_ms <= whole.end_ms and any(
            part.start_ms <= whole.start_ms and whole.end_ms <= part.end_ms for part in rolled
        )
        if revision is None or not over:
            yield from self.store.read(keys, span, meter.make_budget(estimate_rows(keys, span)))
        else:

            def samples(part: TimeRange) -> SampleColumns:
                return SampleColumns.concatenate(
                    [*self.store.read(keys, part, meter.make_budget(estimate_rows(keys, part)))]
                )

            found = self._closed.read_samples(keys, span, revision, samples)
            if len(found):
                yield found

    def _read_rolled_up(
        self, keys: SeriesKeys, span: TimeRange, tier: Tier, step_ms: int, trusted: Trusted | None, meter: Meter
    ) -> Iterator[BucketColumns]:
        def rows(part: TimeRange) -> BucketColumns:
            return self.store.read_buckets(keys, part, tier, meter.make_budget(estimate_rows(keys, part, tier)))

        if trusted is None:
            yield rows(span)
        else:
            yield from self._closed.read(keys, span, tier, step_ms, trusted, rows)

    def read_previous(self, keys: SeriesKeys, before_ms: int, meter: Meter) -> SampleColumns:
        """Read the last sample of each series before a time; see ``Store.read_previous``."""
        return self.store.read_previous(keys, before_ms, meter.make_budget())


def read_series_buckets(
    source: Source,
    keys: SeriesKeys,
    counters: Bools,
    span: TimeRange,
    step_ms: int,
    *,
    owned_ms: int,
    meter: Meter,
    references: References | None = None,
) -> BucketColumns:
    """Read the buckets of some series over a span, from all parts of the source.

    ``counters`` bool[k] marks counters. A counter's first increase is counted from the last sample before the span. If
    that sample was taken before ``owned_ms`` and so belonged to another owner, it is counted from the first sample
    inside. ``references`` are the last samples before the span, if the caller has read them; this function updates
    them.
    """
    if not len(keys) or not span.length_ms:
        return merge([])
    if references is None:
        references = References.make_empty(len(keys))
        if counters.any() and owned_ms < span.start_ms:
            rows = np.flatnonzero(counters)
            before = source.read_previous(keys.select(rows), span.start_ms, meter)
            own = before.time >= owned_ms
            references.update(rows[before.index[own]].astype(np.uint32), before.time[own], before.value[own])
    parts: list[BucketColumns] = []
    size, most = 0, _BUCKETS_A_POINT * meter.limits.query_points
    for piece in source.read_pieces(keys, span, step_ms, meter, (counters, references)):
        if isinstance(piece.columns, SampleColumns):
            part = build_buckets(piece.columns, step_ms, counters, references)
        elif piece.tier is None:
            part = piece.columns
        else:
            columns = _remove_foreign_growth(source, keys, piece.columns, references, span, owned_ms, meter)
            references.update(columns.index, columns.last_time, columns.last)
            part = coarsen(columns, step_ms)
        parts.append(part)
        size += len(part)
        if size > most:
            parts = [merge(parts)]
            size = len(parts[0])
            check_buckets(size, meter)
    return merge(parts)


def check_buckets(count: int, meter: Meter) -> None:
    """Raise LimitExceededError for more buckets than a question may have in memory."""
    most = _BUCKETS_A_POINT * meter.limits.query_points
    if count > most:
        raise LimitExceededError(
            f"a question may make {most} buckets over all its series: take a longer step or a shorter range", "step"
        )


def _remove_foreign_growth(
    source: Source,
    keys: SeriesKeys,
    columns: BucketColumns,
    references: References,
    span: TimeRange,
    owned_ms: int,
    meter: Meter,
) -> BucketColumns:
    """Remove from roll-up rows the growth that their first bucket counts from a sample before ``owned_ms``."""
    foreign = columns.last_time - columns.elapsed < owned_ms
    rows = np.flatnonzero(foreign & (columns.elapsed > 0) & (references.time[columns.index] == NEVER))
    if not len(rows):
        return columns
    index = columns.index[rows]
    before = source.read_previous(keys.select(index), span.start_ms, meter)
    reference = np.full(len(rows), np.nan)
    reference[before.index] = before.value
    rest = columns.increase[rows] - compute_growth(reference, columns.first[rows])
    # If the sample before has expired, its share is unknown: the bucket then has no rate.
    finite = np.isfinite(rest)
    increase, elapsed = columns.increase.copy(), columns.elapsed.copy()
    increase[rows] = np.where(finite, np.maximum(rest, 0.0), 0.0)
    elapsed[rows] = np.where(finite, columns.last_time[rows] - columns.first_time[rows], 0)
    return replace(columns, increase=increase, elapsed=elapsed)


def widen_to_hours(span: TimeRange) -> TimeRange:
    """Widen a range to whole hours for ``Store.find_rolled_up_ranges``."""
    return TimeRange(floor_to(span.start_ms, HOUR), ceil_to(span.end_ms, HOUR))


def split_range(span: TimeRange, step_ms: int, rolled: Sequence[TimeRange]) -> list[Segment]:
    """Split the range into parts, in order of time, each with the coarsest exact source.

    ``rolled`` are the hour-aligned parts with valid roll-ups, sorted. A tier fits if its buckets fill the requested
    ones and the range contains one of its whole buckets. Raw samples answer everything else.
    """
    tiers = [tier for tier in sorted(Tier, reverse=True) if step_ms % tier == 0]
    parts: list[Segment] = []
    at = span.start_ms
    for trusted in rolled if tiers else ():
        inside = trusted.intersect(span)
        if inside is not None:
            _add_segment(parts, at, inside.start_ms, None)
            _tile_segments(parts, inside.start_ms, inside.end_ms, tiers)
            at = inside.end_ms
    _add_segment(parts, at, span.end_ms, None)
    return parts


def _tile_segments(parts: list[Segment], start_ms: int, end_ms: int, tiers: Sequence[Tier]) -> None:
    """Add a rolled-up part: its middle from the coarsest tier, its ends from the next."""
    if not tiers:
        _add_segment(parts, start_ms, end_ms, None)
        return
    tier, finer = tiers[0], tiers[1:]
    first, end = ceil_to(start_ms, tier), floor_to(end_ms, tier)
    if first >= end:
        _tile_segments(parts, start_ms, end_ms, finer)
        return
    _tile_segments(parts, start_ms, first, finer)
    _add_segment(parts, first, end, tier)
    _tile_segments(parts, end, end_ms, finer)


def _add_segment(parts: list[Segment], start_ms: int, end_ms: int, tier: Tier | None) -> None:
    """Add a part unless it is empty; merge it with the last one if both have one source."""
    if start_ms < end_ms:
        if parts and parts[-1].tier is tier:
            start_ms = parts.pop().span.start_ms
        parts.append(Segment(TimeRange(start_ms, end_ms), tier))
