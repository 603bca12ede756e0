"""Where each source was read up to, on disk."""

import logging
from pathlib import Path

import msgspec

from jobmeter.collect.syslog.base import Position

_log = logging.getLogger(__name__)


class Intent(msgspec.Struct, frozen=True):
    """Lines that are about to be handed on: up to ``end``, the first ``taken`` of them from ``first_ns`` on.

    Written before they are. An agent that dies meanwhile hands on the same lines with the same times, so that each
    counts once.
    """

    end: Position
    first_ns: int
    taken: int


class Place(msgspec.Struct):
    """Where a source was read up to, and what comes next where that may have been handed on already."""

    position: Position
    intent: Intent | None = None


class Checkpoint(msgspec.Struct):
    """The places of all sources. ``last_ns`` is the newest time that was given to a line of a source without times."""

    places: dict[str, Place] = {}
    patterns: list[str] = []
    last_ns: int = 0


def load(path: Path | None) -> Checkpoint:
    """What was remembered; nothing where there is no file, or it cannot be read, which is logged."""
    if path is None or not path.exists():
        return Checkpoint()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        _log.warning("the positions in %s cannot be read (%s): sources are read from where they begin", path, error)
        return Checkpoint()


def save(path: Path | None, checkpoint: Checkpoint) -> None:
    """Remember, whole or not at all. Raises OSError."""
    if path is None:
        return
    aside = path.with_suffix(".new")
    aside.write_bytes(msgspec.json.encode(checkpoint))
    aside.replace(path)
