"""Contract of sources of log lines: they have positions, from which lines can be read again."""

from dataclasses import dataclass
from typing import Any, Protocol

Position = dict[str, Any]
"""A position between two lines of a source, as JSON in the source's own format."""


@dataclass(frozen=True, slots=True)
class SystemLogEntry:
    """Line. ``time_ns`` is absent if the source has no times; ``pid`` is the process that it concerns."""

    text: str
    time_ns: int | None = None
    severity: int | None = None
    facility: str = "user"
    tag: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class LogReading:
    """Consecutive lines, and the position after them. ``more``: further lines wait already."""

    entries: list[SystemLogEntry]
    end: Position
    more: bool = False


class SystemLogSource(Protocol):
    """Source of lines in order. Called by one thread. A failure raises OSError, and is retried."""

    @property
    def key(self) -> str:
        """Key of its stored position, unchanged after a restart."""
        ...

    @property
    def stream(self) -> str:
        """Stream of its lines."""
        ...

    def read(self, position: Position | None, until: Position | None = None) -> LogReading | None:
        """Return a bounded number of lines after a position (None: the first reading); None without lines.

        ``until`` returns exactly the lines up to there of an earlier reading, as far as they still exist. Calls follow
        each other: ``position`` is the end of the previous reading, or the stored one.
        """
        ...

    def close(self) -> None:
        """Release open files and processes."""
        ...
