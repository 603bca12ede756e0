"""A log shipper: its source, its sink, and its position."""

import msgspec


class Shipper(msgspec.Struct, frozen=True, kw_only=True):
    """A shipper of the log lines of a resource group to a sink. Times in epoch milliseconds.

    ``project`` empty: the lines of every project. ``sink_project`` and ``logstore`` name a sink of the settings. Lines
    are numbered from 1 as they arrive: ``reserved`` is the highest number given out, ``cursor`` the last one that the
    sink has. ``shipped`` counts lines that the sink took, ``dropped`` those that expired first, ``rejected`` those that
    the sink refused for good, ``failures`` attempts that failed. ``error`` is why the last attempt failed, empty after
    one that did not. ``oldest`` is when the first line that waits arrived, None where none waits.
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
        """How many lines the sink does not have yet."""
        return max(0, self.reserved - self.cursor)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a shipper since ``before``, the cursor that was read last; counts are increments."""

    before: int
    cursor: int
    shipped: int = 0
    dropped: int = 0
    rejected: int = 0
    failures: int = 0
    error: str = ""
    oldest: int | None = None


class OutboxRow(msgspec.Struct, frozen=True):
    """A line in the outbox of a shipper: its number, when it arrived, for how many days it waits, and its JSON."""

    number: int
    arrived: int
    raw_days: int
    line: bytes
