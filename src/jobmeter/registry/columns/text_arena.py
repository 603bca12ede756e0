"""Many short texts in one buffer: one scan finds all texts that contain a part."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.vector import ColumnVector

_END = b"\xff"
"""Separator behind each text. No byte of UTF-8, so that no match spans two texts."""

_DENSE = 3
"""Number of rare bytes of a part that are compared everywhere; the others are compared at their matches."""


class TextArena:
    """Texts as UTF-8 by number, from 0. No text is ever removed."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._starts: ColumnVector[np.int64] = ColumnVector(np.int64)
        self._count = 0
        self._often: NDArray[np.int64] = np.zeros(256, np.int64)
        self._counted = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> bytes:
        start, stop = self._starts.get_first(number + 2)[number:].tolist()
        return bytes(self._buffer[start : stop - 1])

    def get_texts(self, numbers: NDArray[np.int32]) -> list[str]:
        """Return the texts with these numbers."""
        starts = self._starts.get_first(self._count + 1)
        ends = starts[numbers + 1] - 1
        return [
            self._buffer[start:end].decode() for start, end in zip(starts[numbers].tolist(), ends.tolist(), strict=True)
        ]

    def append(self, text: bytes) -> int:
        """Add a text. Return its number."""
        self._buffer += text
        self._buffer += _END
        self._count += 1
        self._starts[self._count] = len(self._buffer)
        return self._count - 1

    def mark_holding(self, part: bytes) -> NDArray[np.bool_]:
        """Mark the texts that contain a part."""
        if not part or not self._count:
            return np.full(self._count, not part)
        buffer = np.frombuffer(self._buffer, np.uint8)
        often = self._count_bytes(buffer)
        order = sorted(range(len(part)), key=lambda place: int(often[part[place]]))
        begins = self._mark_begins(buffer, part, order[:_DENSE])
        starts = self._starts.get_first(self._count)
        if len(part) <= _DENSE and np.count_nonzero(begins) > self._count // 4:
            found: NDArray[np.bool_] = np.bitwise_or.reduceat(begins.view(np.uint8), starts).view(np.bool_)
            return found
        places = np.flatnonzero(begins)
        for place in order[_DENSE:]:
            if not len(places):
                break
            places = places[buffer[places + place] == part[place]]
        found = np.zeros(self._count, np.bool_)
        found[np.searchsorted(starts, places, "right") - 1] = True
        return found

    @staticmethod
    def _mark_begins(buffer: NDArray[np.uint8], part: bytes, places: Sequence[int]) -> NDArray[np.bool_]:
        """Mark the positions where the part may begin, judged by its bytes at ``places``."""
        begins = np.zeros(len(buffer), np.bool_)
        size = len(buffer) - len(part) + 1
        if size > 0:
            first, *others = places
            np.equal(buffer[first : first + size], part[first], out=begins[:size])
            for place in others:
                begins[:size] &= buffer[place : place + size] == part[place]
        return begins

    def _count_bytes(self, buffer: NDArray[np.uint8]) -> NDArray[np.int64]:
        if len(buffer) > 2 * self._counted:
            self._counted = len(buffer)
            # Every seventeenth byte is a good enough estimate.
            self._often = np.bincount(buffer[::17], minlength=256)
        return self._often
