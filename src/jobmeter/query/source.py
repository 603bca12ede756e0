"""Where columns come from: the seam between a question and what holds the samples."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.model.batch import BucketColumns, SampleColumns, SeriesKeys
from jobmeter.model.time import HOUR, Clock, TimeRange
from jobmeter.query.closed import ClosedBuckets
from jobmeter.query.plan import hours_around, segments
from jobmeter.query.reduce import NEVER, Bools, References, bucket, coarsen, growth, merge
from jobmeter.query.spent import ACCOUNT, Spent
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget, Store, Tier

_NAMES = {None: "raw", Tier.MINUTE: "minute", Tier.HOUR: "hour"}
_BUCKETS_A_POINT = 4
_RAW_IS_QUICK = 2 * HOUR
"""Up to here the raw samples answer sooner than it takes to ask which hours are rolled up."""


@dataclass(slots=True, eq=False)
class Meter:
    """What one question has cost so far, and what the request that asks it may still spend."""

    clock: Clock
    limits: Limits
    started: float = 0.0
    rows: int = 0
    tiers: set[str] = field(default_factory=set)
    spent: Spent = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()
        self.spent = ACCOUNT.get() or Spent(self.started)

    def budget(self) -> ReadBudget:
        """What is left. Raises LimitExceededError or QueryTimeoutError when nothing is."""
        rows = self.limits.query_rows - self.spent.rows
        seconds = self.limits.query_seconds - (self.clock.monotonic() - self.spent.since)
        self._check()
        if seconds <= 0:
            raise QueryTimeoutError(f"the question took longer than {self.limits.query_seconds} s")
        return ReadBudget(rows=rows, seconds=seconds)

    def count(self, rows: int, tier: Tier | None) -> None:
        """Note rows that were read, and from where. Raises LimitExceededError when they are more than there may be."""
        self.rows += rows
        self.spent.rows += rows
        if rows:
            self.tiers.add(_NAMES[tier])
        self._check()

    def _check(self) -> None:
        if self.spent.rows > self.limits.query_rows:
            raise LimitExceededError(f"a question may read {self.limits.query_rows} stored rows", "range")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what a source holds: raw samples, or roll-up rows of a tier (with increases of their own)."""

    span: TimeRange
    tier: Tier | None
    columns: SampleColumns | BucketColumns


class Source(Protocol):
    """Something that holds samples of a span: the store, and whatever is put before it."""

    def pieces(self, keys: SeriesKeys, span: TimeRange, step_ms: int, meter: Meter) -> Iterator[Piece]:
        """Everything of those series in the span, each sample once, the parts of one series in order of time.

        Roll-up rows come only where their buckets fill those of ``step_ms``.
        """
        ...

    def previous(self, keys: SeriesKeys, before_ms: int, meter: Meter) -> SampleColumns:
        """See ``Store.previous``."""
        ...


class StoreSource:
    """The store alone: roll-ups where they answer exactly, raw samples elsewhere.

    What roll-ups said is kept while the store can tell that it is still so.
    """

    def __init__(self, store: Store, closed: ClosedBuckets | None = None) -> None:
        self._store = store
        self._closed = closed or ClosedBuckets()

    def pieces(self, keys: SeriesKeys, span: TimeRange, step_ms: int, meter: Meter) -> Iterator[Piece]:
        """See ``Source.pieces``."""
        fits = span.length_ms > _RAW_IS_QUICK and any(step_ms % tier == 0 for tier in Tier)
        jobs = np.unique(keys.job).tolist() if fits else []
        revision = self._store.revision(jobs) if fits else None
        rolled = self._store.rolled(jobs, hours_around(span)) if fits else []
        for segment in segments(span, step_ms, rolled):
            if segment.tier is None:
                for block in self._store.read(keys, segment.span, meter.budget()):
                    meter.count(len(block), None)
                    yield Piece(segment.span, None, block)
            else:
                for rows in self._rolled_up(keys, segment.span, segment.tier, step_ms, revision, meter):
                    meter.count(len(rows), segment.tier)
                    yield Piece(segment.span, segment.tier, rows)

    def _rolled_up(
        self, keys: SeriesKeys, span: TimeRange, tier: Tier, step_ms: int, revision: Hashable | None, meter: Meter
    ) -> Iterator[BucketColumns]:
        def rows(part: TimeRange) -> BucketColumns:
            return self._store.read_buckets(keys, part, tier, meter.budget())

        if revision is None:
            yield rows(span)
        else:
            yield from self._closed.read(keys, span, tier, step_ms, revision, rows)

    def previous(self, keys: SeriesKeys, before_ms: int, meter: Meter) -> SampleColumns:
        """See ``Source.previous``."""
        return self._store.previous(keys, before_ms, meter.budget())


def buckets(
    source: Source, keys: SeriesKeys, counters: Bools, span: TimeRange, step_ms: int, *, owned_ms: int, meter: Meter
) -> BucketColumns:
    """The buckets of some series over a span, from whatever parts the source gives.

    ``counters`` bool[k] says which are counters. A counter's first increase is counted from the last sample before the
    span, or from the first one inside where that sample was taken before ``owned_ms`` and so was somebody else's.
    """
    if not len(keys) or not span.length_ms:
        return merge([])
    references = References.none(len(keys))
    if counters.any() and owned_ms < span.start_ms:
        asked = np.flatnonzero(counters)
        before = source.previous(SeriesKeys(keys.job[asked], keys.series[asked]), span.start_ms, meter)
        own = before.time >= owned_ms
        references.update(asked[before.index[own]].astype(np.uint32), before.time[own], before.value[own])
    parts: list[BucketColumns] = []
    size = 0
    for piece in source.pieces(keys, span, step_ms, meter):
        if isinstance(piece.columns, SampleColumns):
            part = bucket(piece.columns, step_ms, counters, references)
        else:
            columns = _own(source, keys, piece.columns, references, span, owned_ms, meter)
            references.update(columns.index, columns.last_time, columns.last)
            part = coarsen(columns, step_ms)
        parts.append(part)
        size += len(part)
        if size > _BUCKETS_A_POINT * meter.limits.query_points:
            parts = [merge(parts)]
            size = len(parts[0])
            _check_size(size, meter.limits)
    return merge(parts)


def _own(
    source: Source,
    keys: SeriesKeys,
    columns: BucketColumns,
    references: References,
    span: TimeRange,
    owned_ms: int,
    meter: Meter,
) -> BucketColumns:
    """Roll-up rows without the growth that their first bucket counts from a sample before ``owned_ms``."""
    foreign = columns.last_time - columns.elapsed < owned_ms
    rows = np.flatnonzero(foreign & (columns.elapsed > 0) & (references.time[columns.index] == NEVER))
    if not len(rows):
        return columns
    index = columns.index[rows]
    before = source.previous(SeriesKeys(keys.job[index], keys.series[index]), span.start_ms, meter)
    reference = np.full(len(rows), np.nan)
    reference[before.index] = before.value
    rest = columns.increase[rows] - growth(reference, columns.first[rows])
    # Where the sample before has expired, its share cannot be told apart: the bucket then has no rate at all.
    known = np.isfinite(rest)
    increase, elapsed = columns.increase.copy(), columns.elapsed.copy()
    increase[rows] = np.where(known, np.maximum(rest, 0.0), 0.0)
    elapsed[rows] = np.where(known, columns.last_time[rows] - columns.first_time[rows], 0)
    return replace(columns, increase=increase, elapsed=elapsed)


def _check_size(size: int, limits: Limits) -> None:
    most = _BUCKETS_A_POINT * limits.query_points
    if size > most:
        raise LimitExceededError(
            f"a question may make {most} buckets over all its series: take a longer step or a shorter range", "step"
        )
