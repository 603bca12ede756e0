"""Reads a frame of log lines, also invalid ones, into columns: the server's side of ``jobmeter.wire.native.logs``."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec
import numpy as np

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.log_batch import LEVEL_CODES, LogBatch, LogSource, make_times
from jobmeter.wire.native.lenient_json import decode_lenient
from jobmeter.wire.native.logs import LinesPayload, StreamLines

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
        raise LimitExceededError(f"a request may bring at most {most} more lines here, this frame has {count}", "lines")
    return _columns([stream for stream in decoded.streams if stream.lines], project), unknown


def _columns(streams: Sequence[StreamLines], project: str) -> LogBatch:
    lines = [line for stream in streams for line in stream.lines]
    counts = [len(stream.lines) for stream in streams]
    return LogBatch(
        [_source(stream, project) for stream in streams],
        np.repeat(np.arange(len(streams), dtype=np.uint32), counts),
        make_times([line.time_ns for line in lines]),
        np.array([0 if line.level is None else LEVEL_CODES[line.level] for line in lines], np.uint8),
        [line.text for line in lines],
    )


def _source(stream: StreamLines, project: str) -> LogSource:
    return LogSource(*_common(stream))._replace(project=stream.project or project)
