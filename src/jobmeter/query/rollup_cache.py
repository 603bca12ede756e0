"""Cache of buckets of closed hours: a repeated question about a day reads only its last hours again.

Buckets are valid for one revision of the store (``Store.get_revision``). Lines need whole steps, so the cache has
buckets of the query's step. The ends of a range are cached as read, an hour or a day at a time. If a range cuts a
minute, the raw samples of that hour are cached too, from the second query on.
"""

from collections.abc import Callable, Hashable, Iterator

import msgspec

from jobmeter.model.batch import BucketColumns, SampleColumns, SeriesKeys
from jobmeter.model.time import DAY, HOUR, MINUTE, TimeRange, cut_to_steps, floor_to
from jobmeter.query.reduce import FIELDS, coarsen, merge
from jobmeter.store.base import Tier
from jobmeter.store.cache import Cache

_STRETCH = 4
"""Largest length of a cached part as a multiple of the query's."""

_FEW = 256
"""Largest number of series for which an hour of raw samples is small."""

_ASKED_ONCE = "asked once"
"""Entry of a stretch of which one question has read a part."""

ReadRows = Callable[[TimeRange], BucketColumns]
ReadSamples = Callable[[TimeRange], SampleColumns]


class _Part(msgspec.Struct, frozen=True, eq=False):
    span: TimeRange
    columns: BucketColumns


class Trusted(msgspec.Struct, frozen=True):
    """Span whose samples are all rolled up, at a revision of the store."""

    span: TimeRange
    revision: Hashable


class RollupCache:
    """Cached roll-up rows by (series, step). Thread-safe.

    Series are identified by the ``SeriesKeys`` object: a repeated query gets the identical one.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def read(
        self, keys: SeriesKeys, span: TimeRange, tier: Tier, step_ms: int, usable: "Trusted", rows: ReadRows
    ) -> Iterator[BucketColumns]:
        """Return the buckets of ``step_ms`` over a span of one tier, in order of time; ``rows`` reads missing ones.

        The first and last bucket contain only data inside the span.
        """
        whole = cut_to_steps(span, step_ms)
        if not whole.length_ms:
            yield from self._ends(keys, span, tier, step_ms, usable, rows)
            return
        yield from self._ends(keys, TimeRange(span.start_ms, whole.start_ms), tier, step_ms, usable, rows)
        yield self._read_whole(keys, whole, step_ms, usable.revision, rows)
        yield from self._ends(keys, TimeRange(whole.end_ms, span.end_ms), tier, step_ms, usable, rows)

    def read_samples(self, keys: SeriesKeys, span: TimeRange, revision: Hashable, rows: ReadSamples) -> SampleColumns:
        """Return the raw samples of a span inside one ``widen_span``.

        The first question about a stretch reads only its span. The second question reads the whole stretch, for later
        questions.
        """
        whole = widen_span(keys, span)
        name = (RollupCache, id(keys), None, whole.start_ms)
        found: SampleColumns | str | None = self._cache.get(name, (keys, revision))
        if found is None:
            self._cache.put(name, (keys, revision), _ASKED_ONCE, 0)
            return rows(span)
        if isinstance(found, str):
            found = rows(whole)
            size = found.index.nbytes + found.time.nbytes + found.value.nbytes
            self._cache.put(name, (keys, revision), found, size)
        return found.select((found.time >= span.start_ms) & (found.time < span.end_ms))

    def _read_whole(
        self, keys: SeriesKeys, span: TimeRange, step_ms: int, revision: Hashable, rows: ReadRows
    ) -> BucketColumns:
        name = (RollupCache, id(keys), step_ms)
        usable: _Part | None = self._cache.get(name, (keys, revision))
        if usable is None or usable.span.intersect(span) is None:
            return self._put(name, keys, revision, _Part(span, coarsen(rows(span), step_ms))).columns
        missing = list(_subtract_range(span, usable.span))
        if missing:
            parts = [coarsen(rows(part), step_ms) for part in missing]
            covered = TimeRange(min(span.start_ms, usable.span.start_ms), max(span.end_ms, usable.span.end_ms))
            columns = merge([usable.columns, *parts])
            if covered.length_ms > _STRETCH * span.length_ms:
                covered, columns = span, _cut_columns(columns, covered, span)
            usable = self._put(name, keys, revision, _Part(covered, columns))
        return _cut_columns(usable.columns, usable.span, span)

    def _ends(
        self, keys: SeriesKeys, span: TimeRange, tier: Tier, step_ms: int, trusted: "Trusted", rows: ReadRows
    ) -> Iterator[BucketColumns]:
        length = HOUR if tier is Tier.MINUTE else DAY
        for start in range(floor_to(span.start_ms, length), span.end_ms, length):
            chunk = TimeRange(start, start + length)
            covered = chunk.intersect(span)
            if covered is None:
                continue
            name = (RollupCache, id(keys), tier, start)
            usable: _Part | None = self._cache.get(name, (keys, trusted.revision))
            if usable is None or usable.span.start_ms > covered.start_ms or usable.span.end_ms < covered.end_ms:
                # The start of a range moves with every query, so read data for the next queries too.
                whole = chunk.intersect(trusted.span) if len(keys) <= _FEW else None
                if whole is None or whole.intersect(covered) != covered:
                    whole = covered
                usable = self._put(name, keys, trusted.revision, _Part(whole, rows(whole)))
            yield coarsen(_cut_columns(usable.columns, usable.span, covered), step_ms)

    def _put(self, name: Hashable, keys: SeriesKeys, revision: Hashable, part: _Part) -> _Part:
        size = sum(getattr(part.columns, field).nbytes for field in FIELDS)
        self._cache.put(name, (keys, revision), part, size)
        return part


def widen_span(keys: SeriesKeys, span: TimeRange) -> TimeRange:
    """Return the span to read if a range cuts a closed hour, because its start moves with every query."""
    length = HOUR if len(keys) <= _FEW else 5 * MINUTE
    start = floor_to(span.start_ms, length)
    return TimeRange(start, start + length)


def _subtract_range(span: TimeRange, usable: TimeRange) -> Iterator[TimeRange]:
    if span.start_ms < usable.start_ms:
        yield TimeRange(span.start_ms, usable.start_ms)
    if span.end_ms > usable.end_ms:
        yield TimeRange(usable.end_ms, span.end_ms)


def _cut_columns(columns: BucketColumns, covered: TimeRange, span: TimeRange) -> BucketColumns:
    if covered == span:
        return columns
    return columns.select((columns.time >= span.start_ms) & (columns.time < span.end_ms))
