"""Log lines as the payload of a frame, written and read: JSON, the lines of one stream together.

See ``docs/reference/wire-format.md``. Standard library and msgspec only, as an agent carries it.
"""

import zlib
from collections.abc import Iterable

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.wire.native.frame import Codec, Frame, FrameKind, write_frame
from jobmeter.wire.native.newer import decode_known


class _Line(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    time_ns: int
    text: str
    level: Level | None = None


class _Stream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    job: str
    project: str = ""
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = "stdout"
    lines: list[_Line]


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    streams: list[_Stream]


def logs_frame(lines: Iterable[LogLine]) -> bytes:
    """One frame with these lines; an empty project is the key's own."""
    return write_frame(FrameKind.LOGS, encode_lines(lines))


def encode_lines(lines: Iterable[LogLine]) -> bytes:
    """The payload of a frame of lines."""
    streams: dict[tuple[str, str, str, int, str, str], list[_Line]] = {}
    for line in lines:
        key = (line.project, line.job, line.replica, line.attempt, line.node, line.stream)
        streams.setdefault(key, []).append(_Line(line.time_ns, line.text, line.level))
    return msgspec.json.encode(
        _Payload(
            [
                _Stream(
                    project=project,
                    job=job,
                    replica=replica,
                    attempt=attempt,
                    node=node,
                    stream=stream,
                    lines=own,
                )
                for (project, job, replica, attempt, node, stream), own in streams.items()
            ]
        )
    )


def count_lines(frame: Frame) -> int:
    """How many lines a frame of ours holds; 0 for other kinds, other senders' codecs, and what cannot be read."""
    if frame.kind is not FrameKind.LOGS or frame.codec is Codec.ZSTD:
        return 0
    try:
        plain = zlib.decompress(frame.payload) if frame.codec is Codec.ZLIB else bytes(frame.payload)
        streams = msgspec.json.decode(plain, type=_Payload).streams
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return sum(len(stream.lines) for stream in streams)


def line_times(payload: bytes) -> list[int]:
    """The times of a payload's lines, in nanoseconds. Raises what msgspec does for what is no payload."""
    return [line.time_ns for stream in msgspec.json.decode(payload, type=_Payload).streams for line in stream.lines]


def decode_lines(payload: bytes, project: str, most: int) -> tuple[list[LogLine], tuple[str, ...]]:
    """The lines of a payload, in their order, and the names of fields and words that this release does not know.

    ``project`` is what an empty one means.

    Names, times and texts are taken as they are. Raises InvalidRequestError (field ``lines``), LimitExceededError for
    more than ``most`` lines.
    """
    try:
        decoded, unknown = decode_known(payload, _Payload)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"a frame of logs is not valid: {error}", "lines") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a frame of logs is not UTF-8", "lines") from error
    except RecursionError as error:
        raise InvalidRequestError("a frame of logs is nested too deeply", "lines") from error
    streams = decoded.streams
    count = sum(len(stream.lines) for stream in streams)
    if count > most:
        raise LimitExceededError(f"a request may bring {most} more lines here, this frame has {count}", "lines")
    lines = [
        LogLine(
            time_ns=line.time_ns,
            text=line.text,
            level=line.level,
            job=stream.job,
            project=stream.project or project,
            replica=stream.replica,
            attempt=stream.attempt,
            node=stream.node,
            stream=stream.stream,
        )
        for stream in streams
        for line in stream.lines
    ]
    return lines, unknown
