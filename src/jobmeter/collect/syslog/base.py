"""What a source of log lines is: something with positions, from which the same lines can be read again."""

from dataclasses import dataclass
from typing import Any, Protocol

Position = dict[str, Any]
"""A place between two lines of a source, as JSON; what it says is the source's own matter."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``time_ns`` None: the source does not say when; ``pid`` is the process that it is about."""

    text: str
    time_ns: int | None = None
    severity: int | None = None
    facility: str = "user"
    tag: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Lines that follow each other, and the position behind them. ``more``: others wait already."""

    entries: list[Entry]
    end: Position
    more: bool = False


class Source(Protocol):
    """Lines in their order. Called by one thread. A failure raises OSError, and is retried."""

    @property
    def key(self) -> str:
        """What its position is remembered under: the same after a restart."""
        ...

    @property
    def stream(self) -> str:
        """The stream that its lines are of."""
        ...

    def read(self, position: Position | None, until: Position | None = None) -> Reading | None:
        """A bounded number of lines behind a position (None: it is met for the first time); None where there are none.

        ``until`` gives exactly the lines up to there of an earlier reading, as far as they still exist.
        Calls follow each other: ``position`` is the end of the reading before, or what was remembered.
        """
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...
