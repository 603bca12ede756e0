"""Stored read positions of sources."""

import logging
from pathlib import Path

import msgspec

from jobmeter.collect.syslog.base import Position

_log = logging.getLogger(__name__)


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


def load(path: Path | None) -> Checkpoint:
    """The stored checkpoint; an empty one where there is no file, or it cannot be read, which is logged."""
    if path is None or not path.exists():
        return Checkpoint()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        _log.warning("the positions in %s cannot be read (%s): sources are read from where they begin", path, error)
        return Checkpoint()


def save(path: Path | None, checkpoint: Checkpoint) -> None:
    """Store the checkpoint atomically. Raises OSError."""
    if path is None:
        return
    aside = path.with_suffix(".new")
    aside.write_bytes(msgspec.json.encode(checkpoint))
    aside.replace(path)
