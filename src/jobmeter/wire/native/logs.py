"""Log lines as JSON in a frame's payload, grouped by stream. A server reads them in ``log_columns``.

See ``docs/reference/wire-format.md``. Standard library and msgspec only, for agents.
"""

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.wire.native.frame import Frame, FrameKind, unpack, write_frame


class _Line(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    time_ns: int
    text: str
    level: Level | None = None


class StreamLines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Lines that differ only in time, text and level."""

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
    """The payload of a frame of lines."""

    streams: list[StreamLines]


def make_logs_frame(lines: Iterable[LogLine]) -> bytes:
    """Return one frame with these lines. An empty project means the key's project."""
    return write_frame(FrameKind.LOGS, encode_lines(lines))


def encode_lines(lines: Iterable[LogLine]) -> bytes:
    """Return the payload of a frame of lines."""
    streams: dict[tuple[object, ...], StreamLines] = {}
    for line in lines:
        common = _common(line)
        if common not in streams:
            streams[common] = StreamLines(**dict(zip(_COMMON, common, strict=True)), lines=[])
        streams[common].lines.append(_Line(line.time_ns, line.text, line.level))
    return msgspec.json.encode(LinesPayload(list(streams.values())))


def read_line_times(frame: Frame) -> list[int]:
    """Return the times in ns of the lines of a frame that Jobmeter wrote.

    Empty for other kinds of frames and for damaged data.
    """
    if frame.kind is not FrameKind.LOGS:
        return []
    try:
        streams = msgspec.json.decode(unpack(frame), type=LinesPayload).streams
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [line.time_ns for stream in streams for line in stream.lines]
