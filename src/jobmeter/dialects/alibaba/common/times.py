"""Formats times for PAI's products."""

from datetime import UTC, datetime

from jobmeter.model.time import SECOND


def stamp(time_ms: int | None) -> str:
    """Format a time as ``2026-11-20T15:33:56Z``; return an empty text for None."""
    return "" if time_ms is None else f"{datetime.fromtimestamp(time_ms // SECOND, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_plain(time_ms: int) -> str:
    """Format a time as ``2026-11-20 15:33:56`` (UTC), the form of events."""
    return f"{datetime.fromtimestamp(time_ms // SECOND, tz=UTC):%Y-%m-%d %H:%M:%S}"


def compute_seconds(start: int | None, end: int | None, now_ms: int) -> float:
    """Return the seconds from start to end, or to now; 0 before the start."""
    return 0.0 if start is None else max(0, (now_ms if end is None else end) - start) / SECOND
