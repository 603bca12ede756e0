"""Buckets of hours that are over, kept for the next asking: of a day, only its last hours are read again.

What is kept was true at a revision of the store (``Store.revision``) and is thrown away with it. A line of an answer
needs whole steps, so that whole steps are kept, coarsened already; what a range cuts off at its ends is kept as it was
read, an hour or a day at a time, and where it cuts into a minute, so are the raw samples of that hour.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from jobmeter.model.batch import BucketColumns, SampleColumns, SeriesKeys
from jobmeter.model.time import DAY, HOUR, MINUTE, TimeRange, floor_to, whole_steps
from jobmeter.query.reduce import FIELDS, coarsen, empty, merge, take
from jobmeter.store.base import Tier

BOUND = 256 * 2**20
"""Bytes that are kept at most."""
_STRETCH = 4
"""A part that was asked for stays within one that is kept while that is no longer than this many times itself."""

_FEW = 256
"""Series of which an hour of raw samples is not much."""

ReadRows = Callable[[TimeRange], BucketColumns]
ReadSamples = Callable[[TimeRange], SampleColumns]
_Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    keys: SeriesKeys
    revision: Hashable
    span: TimeRange
    columns: BucketColumns
    samples: SampleColumns | None
    size: int


@dataclass(frozen=True, slots=True)
class Trusted:
    """A span of which the roll-ups hold every sample, at a revision of the store."""

    span: TimeRange
    revision: Hashable


class ClosedBuckets:
    """Roll-up rows by (series, step), the least lately asked for going first. Safe to use from any thread.

    Series are known by the very object that names them: a question that is asked again names them by the same one.
    """

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._parts: OrderedDict[_Key, _Part] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Memory that is in use, about."""
        return self._bytes

    def read(
        self, keys: SeriesKeys, span: TimeRange, tier: Tier, step_ms: int, known: "Trusted", rows: ReadRows
    ) -> Iterator[BucketColumns]:
        """The buckets of ``step_ms`` over a span of one tier, in order of time; ``rows`` reads what is not known.

        The first and the last of them hold only what lies inside of the span.
        """
        whole = whole_steps(span, step_ms)
        if not whole.length_ms:
            yield from self._ends(keys, span, tier, step_ms, known, rows)
            return
        yield from self._ends(keys, TimeRange(span.start_ms, whole.start_ms), tier, step_ms, known, rows)
        yield self._whole(keys, whole, step_ms, known.revision, rows)
        yield from self._ends(keys, TimeRange(whole.end_ms, span.end_ms), tier, step_ms, known, rows)

    def samples(self, keys: SeriesKeys, span: TimeRange, revision: Hashable, rows: ReadSamples) -> SampleColumns:
        """The raw samples of a span inside one ``stretch``; the whole of it is read where it is not known."""
        whole = stretch(keys, span)
        name = (id(keys), None, whole.start_ms)
        known = self._get(name, keys, revision)
        found = None if known is None else known.samples
        if found is None:
            found = rows(whole)
            self._put(name, keys, revision, whole, empty(), found)
        inside = (found.time >= span.start_ms) & (found.time < span.end_ms)
        return SampleColumns(found.index[inside], found.time[inside], found.value[inside])

    def _whole(
        self, keys: SeriesKeys, span: TimeRange, step_ms: int, revision: Hashable, rows: ReadRows
    ) -> BucketColumns:
        name = (id(keys), step_ms)
        known = self._get(name, keys, revision)
        if known is None or known.span.intersect(span) is None:
            return self._put(name, keys, revision, span, coarsen(rows(span), step_ms)).columns
        missing = list(_outside(span, known.span))
        if missing:
            parts = [coarsen(rows(part), step_ms) for part in missing]
            covered = TimeRange(min(span.start_ms, known.span.start_ms), max(span.end_ms, known.span.end_ms))
            columns = merge([known.columns, *parts])
            if covered.length_ms > _STRETCH * span.length_ms:
                covered, columns = span, _inside(columns, covered, span)
            known = self._put(name, keys, revision, covered, columns)
        return _inside(known.columns, known.span, span)

    def _ends(
        self, keys: SeriesKeys, span: TimeRange, tier: Tier, step_ms: int, trusted: "Trusted", rows: ReadRows
    ) -> Iterator[BucketColumns]:
        length = HOUR if tier is Tier.MINUTE else DAY
        for start in range(floor_to(span.start_ms, length), span.end_ms, length):
            chunk = TimeRange(start, start + length)
            asked = chunk.intersect(span)
            if asked is None:
                continue
            name = (id(keys), tier, start)
            known = self._get(name, keys, trusted.revision)
            if known is None or known.span.start_ms > asked.start_ms or known.span.end_ms < asked.end_ms:
                # The start of a range moves on with every asking: what the next ones need is read with it.
                whole = chunk.intersect(trusted.span) if len(keys) <= _FEW else None
                if whole is None or whole.intersect(asked) != asked:
                    whole = asked
                known = self._put(name, keys, trusted.revision, whole, rows(whole))
            yield coarsen(_inside(known.columns, known.span, asked), step_ms)

    def _get(self, name: _Key, keys: SeriesKeys, revision: Hashable) -> _Part | None:
        with self._lock:
            known = self._parts.get(name)
            if known is None:
                return None
            if known.keys is not keys or known.revision != revision:
                self._drop(name)
                return None
            self._parts.move_to_end(name)
            return known

    def _put(
        self,
        name: _Key,
        keys: SeriesKeys,
        revision: Hashable,
        span: TimeRange,
        columns: BucketColumns,
        samples: SampleColumns | None = None,
    ) -> _Part:
        size = sum(getattr(columns, field).nbytes for field in FIELDS) + 1_000
        size += 0 if samples is None else samples.index.nbytes + samples.time.nbytes + samples.value.nbytes
        part = _Part(keys, revision, span, columns, samples, size)
        with self._lock:
            self._drop(name)
            self._parts[name] = part
            self._bytes += size
            while self._bytes > self._bound and self._parts:
                self._drop(next(iter(self._parts)))
        return part

    def _drop(self, name: _Key) -> None:
        part = self._parts.pop(name, None)
        if part is not None:
            self._bytes -= part.size


def stretch(keys: SeriesKeys, span: TimeRange) -> TimeRange:
    """What is read at one time where a span cuts into an hour that is over: its start moves on with every asking."""
    length = HOUR if len(keys) <= _FEW else 5 * MINUTE
    start = floor_to(span.start_ms, length)
    return TimeRange(start, start + length)


def _outside(span: TimeRange, known: TimeRange) -> Iterator[TimeRange]:
    if span.start_ms < known.start_ms:
        yield TimeRange(span.start_ms, known.start_ms)
    if span.end_ms > known.end_ms:
        yield TimeRange(known.end_ms, span.end_ms)


def _inside(columns: BucketColumns, covered: TimeRange, span: TimeRange) -> BucketColumns:
    if covered == span:
        return columns
    return take(columns, (columns.time >= span.start_ms) & (columns.time < span.end_ms))
