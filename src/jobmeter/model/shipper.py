"""Log shipper: its source, its sink, and its position."""

import msgspec


class Shipper(msgspec.Struct, frozen=True, kw_only=True):
    """Shipper of a resource group's log lines to a sink. Times in epoch milliseconds.

    ``project`` empty: the lines of every project. ``sink_project`` and ``logstore`` name a sink of the settings. Lines
    are numbered from 1 as they arrive: ``reserved`` is the highest number given out, ``cursor`` the last one that the
    sink has. ``shipped`` counts delivered lines, ``dropped`` expired ones, ``rejected`` permanently refused ones,
    ``failures`` failed attempts. ``error`` is the reason of the last attempt's failure, empty after a success.
    ``oldest`` is the arrival of the first waiting line, None without waiting lines.
    """

    id: str
    project: str
    resource_group: str
    sink_project: str
    logstore: str
    created: int
    reserved: int = 0
    cursor: int = 0
    shipped: int = 0
    dropped: int = 0
    rejected: int = 0
    failures: int = 0
    error: str = ""
    oldest: int | None = None
    updated: int | None = None

    @property
    def waiting(self) -> int:
        """Number of lines that the sink does not have yet."""
        return max(0, self.reserved - self.cursor)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a shipper since ``before``, the last read cursor; counts are increments."""

    before: int
    cursor: int
    shipped: int = 0
    dropped: int = 0
    rejected: int = 0
    failures: int = 0
    error: str = ""
    oldest: int | None = None


class OutboxRow(msgspec.Struct, frozen=True):
    """Line in the outbox of a shipper: its number, its arrival, its lifetime in days, and its JSON."""

    number: int
    arrived: int
    raw_days: int
    line: bytes
