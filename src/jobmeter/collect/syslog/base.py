"""The contract of sources of log lines: they have positions, from which the same lines can be read again."""

from dataclasses import dataclass
from typing import Any, Protocol

Position = dict[str, Any]
"""A position between two lines of a source, as JSON in the source's own format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``time_ns`` None: the source has no times; ``pid`` is the process that it is about."""

    text: str
    time_ns: int | None = None
    severity: int | None = None
    facility: str = "user"
    tag: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Consecutive lines, and the position after them. ``more``: others wait already."""

    entries: list[Entry]
    end: Position
    more: bool = False


class Source(Protocol):
    """Lines in their order. Called by one thread. A failure raises OSError, and is retried."""

    @property
    def key(self) -> str:
        """The key of its stored position: the same after a restart."""
        ...

    @property
    def stream(self) -> str:
        """The stream that its lines are of."""
        ...

    def read(self, position: Position | None, until: Position | None = None) -> Reading | None:
        """A bounded number of lines after a position (None: the first reading); None where there are none.

        ``until`` gives exactly the lines up to there of an earlier reading, as far as they still exist. Calls follow
        each other: ``position`` is the end of the reading before, or the stored one.
        """
        ...

    def close(self) -> None:
        """Release open files and processes."""
        ...
