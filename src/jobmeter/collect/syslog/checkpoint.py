"""Stored read positions of sources."""

from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile
from jobmeter.collect.syslog.base import Position


class Intent(msgspec.Struct, frozen=True):
    """Lines that are about to be put into the outbox: up to ``end``, the first ``taken`` of them from ``first_ns`` on.

    Stored before that, so that an agent that dies meanwhile sends the same lines with the same times, and each counts
    once.
    """

    end: Position
    first_ns: int
    taken: int


class SourcePosition(msgspec.Struct):
    """The read position of a source, and the intent of the next lines, which may have been sent already."""

    position: Position
    intent: Intent | None = None


class Checkpoint(msgspec.Struct):
    """The positions of all sources. ``last_ns`` is the newest time that a line of a source without times was given."""

    places: dict[str, SourcePosition] = {}
    patterns: list[str] = []
    last_ns: int = 0


def checkpoint_file(path: Path | None) -> StateFile[Checkpoint]:
    """Where the checkpoint is stored."""
    unreadable = "the positions in %s cannot be read (%s): sources are read from where they begin"
    return StateFile(path, msgspec.json.Decoder(Checkpoint), unreadable)
