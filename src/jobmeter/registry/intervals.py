"""The use of devices over time, as intervals: joins intervals that overlap or touch."""

from collections.abc import Iterable, Mapping

import msgspec

GAP_MS = 5 * 60_000
"""Largest gap between two samples of a replica's device in one interval."""


class DeviceKey(msgspec.Struct, frozen=True, order=True):
    """The key of joinable intervals: the same device of the same replica, from the same kind of source."""

    project: str
    job: str
    replica: str
    node: str
    device: str
    source: str


class Interval(msgspec.Struct, frozen=True):
    """The time from ``start`` to ``end`` (None: still open), in epoch ms. ``row`` is the id of a stored interval."""

    start: int
    end: int | None
    cluster: str = ""
    rank: int | None = None
    row: int | None = None


class IntervalChange(msgspec.Struct, frozen=True):
    """A change of stored rows.

    ``keep`` is a new interval (``row`` None) or widens that row; the rows of ``drop`` were joined into it. ``newest``:
    no other interval of the key begins after it.
    """

    key: DeviceKey
    keep: Interval
    drop: tuple[int, ...] = ()
    newest: bool = True


def join(
    stored: Mapping[DeviceKey, Iterable[Interval]], fresh: Iterable[tuple[DeviceKey, Interval]], gap_ms: int
) -> list[IntervalChange]:
    """Return the changes that add ``fresh`` to ``stored``. An interval without news causes no change.

    Two intervals are joined if they overlap, touch, or lie at most ``gap_ms`` apart.
    """
    current = {key: list(intervals) for key, intervals in stored.items()}
    changed: dict[DeviceKey, set[int]] = {}
    for key, interval in fresh:
        intervals = current.setdefault(key, [])
        joined = [interval_of for interval_of in intervals if _meet(interval_of, interval, gap_ms)]
        result = interval
        for interval_of in joined:
            result = _union(interval_of, result)
        if joined == [result]:
            continue
        current[key] = [interval_of for interval_of in intervals if interval_of not in joined] + [result]
        changed.setdefault(key, set()).update(interval_of.row for interval_of in joined if interval_of.row is not None)
    return [
        change for key, rows in changed.items() for change in _changes(key, current[key], stored.get(key, ()), rows)
    ]


def _changes(
    key: DeviceKey, current: Iterable[Interval], stored: Iterable[Interval], affected: set[int]
) -> Iterable[IntervalChange]:
    before, last = set(stored), max((interval_of.start for interval_of in current), default=0)
    drop = affected - {interval_of.row for interval_of in current if interval_of.row is not None}
    fresh = [interval_of for interval_of in current if interval_of not in before]
    for number, interval_of in enumerate(fresh):
        yield IntervalChange(key, interval_of, tuple(sorted(drop)) if number == 0 else (), interval_of.start == last)


def _meet(one: Interval, other: Interval, gap_ms: int) -> bool:
    return _reaches(one, other.start, gap_ms) and _reaches(other, one.start, gap_ms)


def _reaches(interval: Interval, time_ms: int, gap_ms: int) -> bool:
    return interval.end is None or interval.end + gap_ms >= time_ms


def _union(interval_of: Interval, fresh: Interval) -> Interval:
    return Interval(
        start=min(interval_of.start, fresh.start),
        end=_end(interval_of, fresh),
        cluster=fresh.cluster or interval_of.cluster,
        rank=interval_of.rank if fresh.rank is None else fresh.rank,
        row=fresh.row if interval_of.row is None else interval_of.row,
    )


def _end(interval_of: Interval, fresh: Interval) -> int | None:
    if interval_of.end is None:
        # A fresh end closes an open interval, unless it lies before the opening (they only touch).
        closes = fresh.end is not None and (fresh.end > interval_of.start or fresh.start >= interval_of.start)
        return fresh.end if closes else None
    if fresh.end is None:
        # An opening that begins no later than a finished interval is an old message, delivered again.
        return interval_of.end if fresh.start <= interval_of.start else None
    return max(interval_of.end, fresh.end)
