"""Reads the times of a frame, without its names and values: standard library and msgspec only."""

import struct
import sys
from array import array

from jobmeter.model.time import NS_PER_MS
from jobmeter.wire.native.frame import Frame, FrameKind, read_frame, unpack
from jobmeter.wire.native.logs import read_line_times

_COUNTS = struct.Struct("<II")
_SAMPLE = 16


def find_newest_time(body: bytes) -> int:
    """Return the latest time of a sample or line in a body of whole frames, epoch milliseconds.

    0 for records, for the codecs of other senders and for damaged data.
    """
    newest, at = 0, 0
    while found := read_frame(body, at):
        frame, at = found
        newest = max(newest, _find_newest(frame))
    return newest


def _find_newest(frame: Frame) -> int:
    if frame.kind is FrameKind.LOGS:
        return max(read_line_times(frame), default=0) // NS_PER_MS
    plain = unpack(frame) if frame.kind is FrameKind.SAMPLES else b""
    if not plain:
        return 0
    _, count = _COUNTS.unpack_from(plain)
    times = array("q", plain[len(plain) - _SAMPLE * count : len(plain) - _SAMPLE // 2 * count])
    if sys.byteorder == "big":
        times.byteswap()
    return max(times, default=0)
