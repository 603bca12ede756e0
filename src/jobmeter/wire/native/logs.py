"""Log lines as the payload of a frame: JSON, the lines of one stream together. A server reads it in ``log_columns``.

See ``docs/reference/wire-format.md``. Standard library and msgspec only, as an agent carries it.
"""

import zlib
from collections.abc import Iterable
from operator import attrgetter

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.wire.native.frame import Codec, Frame, FrameKind, write_frame


class _Line(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    time_ns: int
    text: str
    level: Level | None = None


class StreamLines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Lines that have everything in common but time, text and level."""

    job: str = ""
    project: str = ""
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = "stdout"
    facility: str = ""
    severity: int | None = None
    tag: str = ""
    lines: list[_Line]


_COMMON = StreamLines.__struct_fields__[:-1]
_common = attrgetter(*_COMMON)


class LinesPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a frame of lines holds."""

    streams: list[StreamLines]


def logs_frame(lines: Iterable[LogLine]) -> bytes:
    """One frame with these lines; an empty project is the key's own."""
    return write_frame(FrameKind.LOGS, encode_lines(lines))


def encode_lines(lines: Iterable[LogLine]) -> bytes:
    """The payload of a frame of lines."""
    streams: dict[tuple[object, ...], StreamLines] = {}
    for line in lines:
        common = _common(line)
        if common not in streams:
            streams[common] = StreamLines(**dict(zip(_COMMON, common, strict=True)), lines=[])
        streams[common].lines.append(_Line(line.time_ns, line.text, line.level))
    return msgspec.json.encode(LinesPayload(list(streams.values())))


def count_lines(frame: Frame) -> int:
    """How many lines a frame of ours holds; 0 for other kinds, other senders' codecs, and what cannot be read."""
    if frame.kind is not FrameKind.LOGS or frame.codec is Codec.ZSTD:
        return 0
    try:
        plain = zlib.decompress(frame.payload) if frame.codec is Codec.ZLIB else bytes(frame.payload)
        streams = msgspec.json.decode(plain, type=LinesPayload).streams
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return sum(len(stream.lines) for stream in streams)


def line_times(payload: bytes) -> list[int]:
    """The times of a payload's lines, in nanoseconds. Raises what msgspec does for what is no payload."""
    return [line.time_ns for stream in msgspec.json.decode(payload, type=LinesPayload).streams for line in stream.lines]
