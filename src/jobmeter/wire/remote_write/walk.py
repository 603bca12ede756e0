"""Where the fields of many series lie, found for all of them at once.

The first fields of all series are read in one array operation, then their second ones, and so on. What is encoded in
an unusual way, or has very many fields, is read one field after the other instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import Int64s
from jobmeter.wire.remote_write.scalar import BYTES, damaged, fields, varint

Octets = NDArray[np.uint8]

LABELS, SAMPLE = 0x0A, 0x12
"""Tags of a series that both versions have alike."""
_PAD = 16
_ROUNDS = 64
_SHORT = 128


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """``names``: what names each series, the bytes of its label fields. Samples in their order within each series.

    ``index`` int64[n]: which series a sample is of; ``at`` and ``end`` int64[n]: where its content lies. ``others``
    counts fields by their tag.
    """

    names: list[bytes]
    index: Int64s
    at: Int64s
    end: Int64s
    others: dict[int, int]


def padded(data: bytes) -> Octets:
    """The bytes as an array, zeros following them, so that reading ahead needs no check."""
    return np.frombuffer(data + bytes(_PAD), np.uint8)


def split(data: bytes, tags: Sequence[int], most: int) -> list[tuple[list[int], list[int]]]:
    """Where the contents of a message's fields begin and end, by tag; other fields are passed over.

    Raises InvalidRequestError, or LimitExceededError for more than ``most`` fields.
    """
    found: dict[int, tuple[list[int], list[int]]] = {tag: ([], []) for tag in tags}
    at, size = 0, len(data)
    try:
        for _ in range(most):
            if at >= size:
                break
            places = found.get(data[at])
            if places is None:
                _, _, _, at = next(fields(data, at, size))
                continue
            length = data[at + 1]
            at += 2
            if length >= _SHORT:
                high = data[at]
                if high < _SHORT:  # as nearly every series has it
                    length += (high << 7) - _SHORT
                    at += 1
                else:
                    length, at = varint(data, at - 1, size)
            places[0].append(at)
            at += length
            places[1].append(at)
    except IndexError as error:
        raise damaged("it ends inside a field") from error
    if at > size:
        raise damaged("it ends inside a field")
    if at < size:
        raise LimitExceededError(f"a request may have {most} series, symbols and other parts", "body")
    return [found[tag] for tag in tags]


def walk(data: bytes, octets: Octets, starts: Sequence[int], ends: Sequence[int], *, packed: bool) -> Walked:
    """The fields of the series whose messages lie there; ``octets`` is ``data``, padded. Raises InvalidRequestError.

    ``packed``: the names are the content of label fields, else the fields with their tags and lengths.
    """
    start, end = np.array(starts, np.int64), np.array(ends, np.int64)
    rounds = _Rounds(octets, start, end, packed=packed)
    rounds.run()
    first, last = rounds.name_start.tolist(), rounds.name_end.tolist()
    names = [data[begin:stop] for begin, stop in zip(first, last, strict=True)]
    index, at, until, others = rounds.samples()
    odd = np.flatnonzero(rounds.odd).tolist()
    if not odd:
        return Walked(names, index, at, until, others)
    singly = [_one(data, place, starts[place], ends[place], names, others, packed=packed) for place in odd]
    rows = np.array([row for part in singly for row in part], np.int64).reshape(-1, 3)
    index, at, until = (np.r_[left, right] for left, right in zip((index, at, until), rows.T, strict=True))
    order = np.argsort(index, kind="stable")
    return Walked(names, index[order], at[order], until[order], others)


def _one(
    data: bytes, place: int, start: int, end: int, names: list[bytes], others: dict[int, int], *, packed: bool
) -> list[tuple[int, int, int]]:
    """The samples of one series, its fields in any order and encoding."""
    parts: list[bytes] = []
    rows: list[tuple[int, int, int]] = []
    for tag, begin, content, stop in fields(data, start, end):
        if tag == LABELS:
            parts.append(data[content if packed else begin : stop])
        elif tag == LABELS - BYTES and packed:  # references that are not packed, which is as legal
            parts.append(data[content:stop])
        elif tag == SAMPLE:
            rows.append((place, content, stop))
        else:
            others[tag] = others.get(tag, 0) + 1
    names[place] = b"".join(parts)
    return rows


class _Rounds:
    """The usual form: label fields, then everything else, all of them with a length below 2^14."""

    def __init__(self, octets: Octets, start: Int64s, end: Int64s, *, packed: bool) -> None:
        self._heads = np.ndarray(len(octets) - 3, "<u4", octets, strides=(1,))
        self._packed = packed
        self.name_start = start.copy()
        self.name_end = start.copy()
        self.odd = np.zeros(len(start), np.bool_)
        self._place: Int64s = np.flatnonzero(start < end)
        self._at: Int64s = start[self._place]
        self._end: Int64s = end[self._place]
        self._found: list[tuple[Int64s, Octets, Int64s, Int64s]] = []

    def run(self) -> None:
        """Read until every series has ended or is odd."""
        for turn in range(_ROUNDS):
            if not len(self._place):
                return
            self._turn(turn)
        self.odd[self._place] = True

    def _turn(self, turn: int) -> None:
        place, at, end = self._place, self._at, self._end
        head = self._heads[at]  # a tag, and one or two bytes of length
        tag = (head & 0xFF).astype(np.uint8)
        long = head >> 15 & 1
        content = at + 2 + long
        after = content + (head >> 8 & 127) + (head >> 9 & 0x3F80) * long
        odd = ((tag & 0x87) != BYTES) | (tag < 8) | (long & head >> 23).astype(np.bool_) | (after > end)
        labels = tag == LABELS
        if self._packed:
            odd |= labels & (turn > 0)
            self.name_start[place[labels]] = content[labels]
        else:
            odd |= labels & (self.name_end[place] != at)
        self.name_end[place[labels]] = after[labels]
        rest = ~labels
        if odd.any():
            self.odd[place[odd]] = True
            rest &= ~odd
        if rest.any():
            self._found.append((place[rest], tag[rest], content[rest], after[rest]))
        on = ~odd & (after < end)
        if on.all():
            self._at = after
        else:
            self._place, self._at, self._end = place[on], after[on], end[on]

    def samples(self) -> tuple[Int64s, Int64s, Int64s, dict[int, int]]:
        """The samples of the series that are not odd, in their order, and the count of their other fields by tag."""
        if not self._found:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), {}
        place, tag, at, end = (np.concatenate(parts) for parts in zip(*self._found, strict=True))
        plain = ~self.odd[place]
        chosen = plain & (tag == SAMPLE)
        rest = tag[plain & (tag != SAMPLE)]
        others = {int(one): int(count) for one, count in zip(*np.unique(rest, return_counts=True), strict=True)}
        place, at, end = place[chosen], at[chosen], end[chosen]
        if len(self._found) > 1:
            order = np.argsort(place, kind="stable")
            place, at, end = place[order], at[order], end[order]
        return place, at, end, others
