"""Reads the content of a segment of the journal, even from a damaged file.

Records are found by their heads and feet, wherever these lie, and count in the order in which they were written: each
has the byte at which it began. So the reader finds the next record behind a damaged one, behind a gap, and in a
misplaced block. A repeated block counts once.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.record import (
    FOOT_MAGIC,
    HEAD_BYTES,
    HEAD_MAGIC,
    LEAST_ROW_BYTES,
    RecordHead,
    RecordPosition,
    decompress,
    read_body,
    read_head,
)
from jobmeter.store.clickhouse.rows import SampleRuns

_MARK = re.compile(HEAD_MAGIC + b"|" + FOOT_MAGIC)


class Loss(NamedTuple):
    """A number of acknowledged rows that cannot be read any more. With ``at_most`` it is an upper bound."""

    rows: int = 0
    at_most: bool = False


class SegmentContent(msgspec.Struct, frozen=True):
    """The content of a segment.

    ``groups``: the rows of intact records, in the order in which they were written. ``descriptors``: copies of
    descriptors whose own record cannot be read. ``lost``: rows of damaged records. ``damaged``: bytes that differ from
    what was written, with or without a loss of rows. ``unfinished``: bytes of an incomplete record at the end: an
    interrupted write that was never acknowledged.
    """

    groups: Sequence[SampleRuns]
    descriptors: Sequence[Descriptors] = ()
    lost: Loss = Loss()
    damaged: int = 0
    unfinished: int = 0


def scan(segment: bytes, salt: int, acknowledged: RecordPosition | None) -> SegmentContent:
    """Return the readable content of a segment.

    ``acknowledged`` is the end of its last acknowledged record, None if unknown. After a power loss, records behind
    ``acknowledged`` may be acknowledged too.
    """
    records = _Records(segment, salt)
    groups, descriptors = _decode_records(records)
    end = acknowledged or RecordPosition()
    for head in records.heads.values():
        if head.at in records.bodies or head.at < end.at or not records.is_cut_off(head):
            end = RecordPosition(max(end.at, head.end), max(end.rows, head.rows_until))
    lost = Loss(end.rows - sum(map(len, groups)))
    tail = segment[end.at :].rstrip(b"\0")
    if acknowledged is None and len(tail) >= HEAD_BYTES and not any(at >= end.at for at in records.heads):
        # Neither head nor foot of this record is readable, so its number of rows is unknown.
        lost = Loss(lost.rows + len(tail) // LEAST_ROW_BYTES, at_most=True)
        end = RecordPosition(len(segment), end.rows)
    damaged = end.at - sum(size for at, size in records.covered.items() if at < end.at)
    return SegmentContent(groups, descriptors, lost, damaged, max(0, len(segment) - end.at))


class _Records:
    """The records of a segment by the byte at which each was written.

    ``heads`` has the head or the foot of each, ``bodies`` the intact bodies. ``covered`` is the number of intact bytes
    of each.
    """

    def __init__(self, segment: bytes, salt: int) -> None:
        self.heads: dict[int, RecordHead] = {}
        self.bodies: dict[int, bytes] = {}
        self.covered = Counter[int]()
        self._segment = segment
        self._places: dict[int, int] = {}
        self._feet: set[int] = set()
        at = 0
        while (mark := _MARK.search(segment, at)) is not None:
            at = mark.start()
            head = read_head(segment, at, salt)
            if head is None:
                at += 1
            elif mark.group() == HEAD_MAGIC:
                at = self._note_head(head, at)
            else:
                at = self._note_foot(head, at)

    def is_cut_off(self, head: RecordHead) -> bool:
        """Return True if a write may have been interrupted: the file ends, or has only zeros, at the place of a foot.

        A file may grow before its content is on disk.
        """
        if head.at in self._feet:
            return False
        end = self._places[head.at] + head.size + 2 * HEAD_BYTES
        rest = self._segment[end:]
        return end > len(self._segment) or not any(self._segment[end - 8 : end]) or (bool(rest) and not any(rest))

    def _note_head(self, head: RecordHead, at: int) -> int:
        """Add a head that lies at a byte. Return the position at which the search continues."""
        self.heads[head.at] = head
        self._places.setdefault(head.at, at)
        self.covered[head.at] += HEAD_BYTES * (at == head.at)
        return self._note_body(head, at + HEAD_BYTES) or at + HEAD_BYTES

    def _note_foot(self, head: RecordHead, at: int) -> int:
        self.heads[head.at] = head
        self._feet.add(head.at)
        self.covered[head.at] += HEAD_BYTES * (at == head.end - HEAD_BYTES)
        self._note_body(head, at - head.size)
        return at + HEAD_BYTES

    def _note_body(self, head: RecordHead, begin: int) -> int:
        """Add an intact body. Return its end, 0 if it is damaged or already added."""
        end = begin + head.size
        if head.at in self.bodies or begin < 0 or end > len(self._segment):
            return 0
        body = self._segment[begin:end]
        if crc32(body) != head.check:
            return 0
        self.bodies[head.at] = body
        self.covered[head.at] += head.size * (begin == head.at + HEAD_BYTES)
        return end


def _decode_records(records: _Records) -> tuple[list[SampleRuns], list[Descriptors]]:
    """Return the rows of intact records, and the descriptors that none of them came with."""
    bodies = [read_body(records.bodies[at], records.heads[at]) for at in sorted(records.bodies)]
    sections = [section for body in bodies for section in body.sections]
    lists = {one.number: one.keys for one in reversed(sections) if one.keys is not None}
    groups, taken = list[SampleRuns](), {b""}
    for one in sections:
        keys = lists.get(one.number)
        if keys is not None:
            own = None if one.descriptors in taken else decompress(one.descriptors)
            groups.append(SampleRuns(keys, one.count, one.time, one.value, one.retention, None, own))
            taken.add(one.descriptors)
    every = dict.fromkeys([one.descriptors for one in sections] + [copy for body in bodies for copy in body.copies])
    return groups, [decompress(one) for one in every if one not in taken]
