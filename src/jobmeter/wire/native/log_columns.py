"""Reads a frame of log lines, also invalid ones, into columns: the server's side of ``jobmeter.wire.native.logs``."""

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import TypeVar

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.log_batch import LEVEL_CODES, LogBatch, LogSource, times
from jobmeter.wire.native.logs import LinesPayload, StreamLines

T = TypeVar("T")

_MOST = 16
"""Most fields and words that are removed from one payload."""
_LONGEST = 200
_FIELD = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WORD = re.compile(
    r"Invalid enum value '(?P<word>.*)' - at `\$(?P<path>.*)(?:\.(?P<name>\w+)|\[(?P<place>\d+)\])`", re.DOTALL
)
_STEP = re.compile(r"\.(\w+)|\[(?:\d+|\.\.\.)\]")


def decode_lenient(data: bytes, kind: type[T]) -> tuple[T, tuple[str, ...]]:
    """Return the object, and the names of removed parts: fields, and words (``jobs.state='Paused'``).

    Raises msgspec.ValidationError for any other fault, and if more than 16 names would be removed; msgspec.DecodeError,
    UnicodeDecodeError and RecursionError for invalid JSON.
    """
    try:
        return msgspec.json.decode(data, type=kind), ()
    except msgspec.ValidationError as error:
        if not (_FIELD.fullmatch(str(error)) or _WORD.fullmatch(str(error))):
            raise
        document = msgspec.json.decode(data)
    left_out: list[str] = []
    while True:
        try:
            return msgspec.convert(document, kind), tuple(left_out)
        except msgspec.ValidationError as error:
            name = _leave_out(document, str(error)) if len(left_out) < _MOST else None
            if name is None:
                raise
            left_out.append(name)


def _leave_out(document: object, message: str) -> str | None:
    """Remove the field or word that the message names from every entry of the lists on its path. Return its name."""
    if found := _FIELD.fullmatch(message):
        path, name = found["path"] or "", found["name"]
        for parent in _find_at(document, path):
            if isinstance(parent, dict):
                parent.pop(name, None)
        return _name(path, name)
    if found := _WORD.fullmatch(message):
        path, word = found["path"], found["word"]
        for parent in _find_at(document, path):
            if isinstance(parent, dict) and parent.get(found["name"]) == word:
                del parent[found["name"]]
            elif isinstance(parent, list) and found["place"] and parent[int(found["place"]) :][:1] == [word]:
                parent[int(found["place"])] = None
        return _name(path, f"{found['name'] or found['place']}={word!r}")
    return None


def _name(path: str, last: str) -> str:
    return ".".join([*(match[1] for match in _STEP.finditer(path) if match[1]), last])[:_LONGEST]


def _find_at(document: object, path: str) -> list[object]:
    found = [document]
    for step in _STEP.finditer(path):
        found = [inner for outer in found for inner in _list_members(outer, step[1])]
    return found


def _list_members(outer: object, name: str | None) -> list[object]:
    if isinstance(outer, dict):
        return list(outer.values()) if name is None else [outer[name]] if name in outer else []
    return list(outer) if isinstance(outer, list) and name is None else []


_common = attrgetter(*LogSource._fields)


def decode_lines(payload: bytes, project: str, most: int) -> tuple[LogBatch, tuple[str, ...]]:
    """Return the lines of a payload, in their order, and the names of unknown fields and words.

    ``project`` replaces an empty project. Names, times and texts are not validated. Raises InvalidRequestError (field
    ``lines``, or ``time`` for a time beyond 64 bits), LimitExceededError for more than ``most`` lines.
    """
    try:
        decoded, unknown = decode_lenient(payload, LinesPayload)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"a frame of logs is not valid: {error}", "lines") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a frame of logs is not UTF-8", "lines") from error
    except RecursionError as error:
        raise InvalidRequestError("a frame of logs is nested too deeply", "lines") from error
    count = sum(len(stream.lines) for stream in decoded.streams)
    if count > most:
        raise LimitExceededError(f"a request may bring {most} more lines here, this frame has {count}", "lines")
    return _columns([stream for stream in decoded.streams if stream.lines], project), unknown


def _columns(streams: Sequence[StreamLines], project: str) -> LogBatch:
    lines = [line for stream in streams for line in stream.lines]
    counts = [len(stream.lines) for stream in streams]
    return LogBatch(
        [_source(stream, project) for stream in streams],
        np.repeat(np.arange(len(streams), dtype=np.uint32), counts),
        times([line.time_ns for line in lines]),
        np.array([0 if line.level is None else LEVEL_CODES[line.level] for line in lines], np.uint8),
        [line.text for line in lines],
    )


def _source(stream: StreamLines, project: str) -> LogSource:
    return LogSource(*_common(stream))._replace(project=stream.project or project)
