"""Plan the reads of a query: choose the source of each part of its range."""

from collections.abc import Sequence

import msgspec

from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, TimeRange, ceil_to, floor_to
from jobmeter.store.base import Tier

WHOLE_MS = ceil_to(MAX_TIME_MS + 1, DAY)
"""Step of one bucket for any range, which every roll-up can fill."""


class Segment(msgspec.Struct, frozen=True):
    """Part of the range with its source: a roll-up tier, or raw samples (None)."""

    span: TimeRange
    tier: Tier | None


def hours_around(span: TimeRange) -> TimeRange:
    """Widen a range to whole hours for ``Store.rolled_up_ranges``."""
    return TimeRange(floor_to(span.start_ms, HOUR), ceil_to(span.end_ms, HOUR))


def segments(span: TimeRange, step_ms: int, rolled: Sequence[TimeRange]) -> list[Segment]:
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
            _add(parts, at, inside.start_ms, None)
            _tile(parts, inside.start_ms, inside.end_ms, tiers)
            at = inside.end_ms
    _add(parts, at, span.end_ms, None)
    return parts


def _tile(parts: list[Segment], start_ms: int, end_ms: int, tiers: Sequence[Tier]) -> None:
    """Add a rolled-up part: its middle from the coarsest tier, its ends from the next."""
    if not tiers:
        _add(parts, start_ms, end_ms, None)
        return
    tier, finer = tiers[0], tiers[1:]
    first, end = ceil_to(start_ms, tier), floor_to(end_ms, tier)
    if first >= end:
        _tile(parts, start_ms, end_ms, finer)
        return
    _tile(parts, start_ms, first, finer)
    _add(parts, first, end, tier)
    _tile(parts, end, end_ms, finer)


def _add(parts: list[Segment], start_ms: int, end_ms: int, tier: Tier | None) -> None:
    """Add a part unless it is empty; merge it with the last one if both have one source."""
    if start_ms < end_ms:
        if parts and parts[-1].tier is tier:
            start_ms = parts.pop().span.start_ms
        parts.append(Segment(TimeRange(start_ms, end_ms), tier))
