"""Times as ModelArts writes them in events and stages."""

from datetime import UTC, datetime


def iso_with_offset(time_ms: int) -> str:
    """``2026-11-20T15:33:56+00:00``, with milliseconds only where there are some."""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="seconds" if time_ms % 1000 == 0 else "milliseconds")
