"""From a query to the reads that answer it: the source of each part of its range."""

from collections.abc import Iterator, Sequence

import msgspec

from jobmeter.model.time import HOUR, TimeRange, ceil_to, floor_to
from jobmeter.store.base import Tier


class Segment(msgspec.Struct, frozen=True):
    """A part of the range and where it is read from: a roll-up tier, or raw samples (None)."""

    span: TimeRange
    tier: Tier | None


def hours_around(span: TimeRange) -> TimeRange:
    """The range widened to whole hours, for ``Store.rolled``: an hour that the range cuts counts."""
    return TimeRange(floor_to(span.start_ms, HOUR), ceil_to(span.end_ms, HOUR))


def segments(span: TimeRange, step_ms: int, rolled: Sequence[TimeRange]) -> list[Segment]:
    """The range in parts, in order of time, each from the coarsest source that answers it exactly.

    ``rolled`` are the hour-aligned parts in which roll-ups may be trusted, sorted. A tier fits when its buckets fill
    the asked ones, and only where the range holds a whole bucket of it; raw samples answer everything else.
    """
    tiers = [tier for tier in sorted(Tier, reverse=True) if step_ms % tier == 0]
    parts: list[Segment] = []
    at = span.start_ms
    for trusted in rolled if tiers else ():
        inside = trusted.intersect(span)
        if inside is None:
            continue
        if at < inside.start_ms:
            parts.append(Segment(TimeRange(at, inside.start_ms), None))
        parts.extend(_tiled(inside, tiers))
        at = inside.end_ms
    if at < span.end_ms:
        parts.append(Segment(TimeRange(at, span.end_ms), None))
    return list(_joined(parts))


def _tiled(span: TimeRange, tiers: Sequence[Tier]) -> Iterator[Segment]:
    """A trusted part, its middle from the coarsest tier, what is left at its ends from the next."""
    if not tiers:
        yield Segment(span, None)
        return
    tier, finer = tiers[0], tiers[1:]
    start, end = ceil_to(span.start_ms, tier), floor_to(span.end_ms, tier)
    if start >= end:
        yield from _tiled(span, finer)
        return
    if span.start_ms < start:
        yield from _tiled(TimeRange(span.start_ms, start), finer)
    yield Segment(TimeRange(start, end), tier)
    if end < span.end_ms:
        yield from _tiled(TimeRange(end, span.end_ms), finer)


def _joined(parts: Sequence[Segment]) -> Iterator[Segment]:
    last: Segment | None = None
    for part in parts:
        if last is not None and last.tier is part.tier:
            last = Segment(TimeRange(last.span.start_ms, part.span.end_ms), part.tier)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last
