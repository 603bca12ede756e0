"""Many short texts in one buffer: each has a number, and all that hold some part are found by looking through once."""

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.vector import Vector

_END = b"\xff"
"""Behind each text: no byte of UTF-8, so that nothing is found that begins in one text and ends in the next."""


class Heap:
    """Texts as UTF-8 by number, from 0; they stay."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._starts: Vector[np.int64] = Vector(np.int64)
        self._count = 0
        self._often: NDArray[np.int64] = np.zeros(256, np.int64)
        self._counted = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> bytes:
        start, stop = self._starts.first(number + 2)[number:].tolist()
        return bytes(self._buffer[start : stop - 1])

    def append(self, text: bytes) -> int:
        """Keep one more text; gives its number."""
        self._buffer += text
        self._buffer += _END
        self._count += 1
        self._starts[self._count] = len(self._buffer)
        return self._count - 1

    def holding(self, part: bytes) -> NDArray[np.bool_]:
        """By number: whether the text holds that part."""
        found = np.zeros(self._count, np.bool_)
        if not part or not self._count:
            found[:] = True
            return found
        places = self._places(part)
        found[np.searchsorted(self._starts.first(self._count), places, "right") - 1] = True
        return found

    def _places(self, part: bytes) -> NDArray[np.intp]:
        """Where the part begins: where its rarest byte is, as far as the others are beside it."""
        buffer = np.frombuffer(self._buffer, np.uint8)
        often = self._frequencies(buffer)
        first, *others = sorted(range(len(part)), key=lambda place: int(often[part[place]]))
        places = np.flatnonzero(buffer == part[first]) - first
        places = places[(places >= 0) & (places <= len(buffer) - len(part))]
        for place in others:
            if not len(places):
                break
            places = places[buffer[places + place] == part[place]]
        return places

    def _frequencies(self, buffer: NDArray[np.uint8]) -> NDArray[np.int64]:
        if len(buffer) > 2 * self._counted:
            self._counted = len(buffer)
            # A guess from every seventeenth will do.
            self._often = np.bincount(buffer[::17], minlength=256)
        return self._often
