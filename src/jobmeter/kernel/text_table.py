"""Numbers texts from 0, in the order in which they are added (``text_table.c``)."""

import os
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import point_to
from jobmeter.kernel.number_table import NumberTable

Int64s = NDArray[np.int64]
_FIND = bind("jobmeter_texts_find", [DATA, PLACE, PLACE, SIZE, *[PLACE] * 4, SIZE, SIZE, PLACE], SIZE)

_FIRST_TEXTS, _FIRST_BYTES = 1_024, 65_536


class Texts(Sequence[bytes]):
    """Pieces of one text, as a sequence of bytes that are cut out on access.

    ``begin`` and ``end``: int64[n], within ``data``.
    """

    __slots__ = ("begin", "data", "end")

    def __init__(self, data: bytes, begin: Int64s, end: Int64s) -> None:
        self.data = data
        self.begin = np.ascontiguousarray(begin, np.int64)
        self.end = np.ascontiguousarray(end, np.int64)

    @classmethod
    def from_texts(cls, texts: Sequence[bytes]) -> "Texts":
        """Join separate texts into one."""
        if isinstance(texts, Texts):
            return texts
        edges = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=edges[1:])
        return cls(b"".join(texts), edges[:-1], edges[1:])

    def take(self, places: Int64s) -> "Texts":
        """Return the texts at some positions."""
        return Texts(self.data, self.begin[places], self.end[places])

    def __len__(self) -> int:
        return len(self.begin)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        """Return one text, or a list for a slice."""
        if isinstance(at, slice):
            ends = zip(self.begin[at].tolist(), self.end[at].tolist(), strict=True)
            return [self.data[begin:end] for begin, end in ends]
        return self.data[int(self.begin[at]) : int(self.end[at])]


class TextTable:
    """A number for each text, in a hash table. Not safe for several threads."""

    def __init__(self) -> None:
        self._key = np.frombuffer(os.urandom(16), np.uint64) | np.uint64(1)
        self._numbers = NumberTable()
        self._edges = np.zeros(_FIRST_TEXTS + 1, np.int64)
        self._memory = np.empty(_FIRST_BYTES, np.uint8)
        self._count = 0

    def __len__(self) -> int:
        """Return the number of texts."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of all texts together."""
        return int(self._edges[self._count])

    def find(self, texts: Texts, *, adds: bool = False) -> Int64s:
        """Return the number of each text, int64[n]; -1 for an unknown text."""
        count = len(texts)
        inside = len(texts.end) == count and bool((texts.begin >= 0).all() and (texts.begin <= texts.end).all())
        if not inside or int(texts.end.max(initial=0)) > len(texts.data):
            raise ValueError("a text lies outside of its data")
        if adds:
            self._reserve(count, int((texts.end - texts.begin).sum()))
        numbers = np.empty(count, np.int64)
        inputs = texts.data, point_to(texts.begin), point_to(texts.end), count, point_to(self._key)
        memory = self._numbers.slots, point_to(self._edges), point_to(self._memory), self._count
        self._count = int(_FIND(*inputs, *memory, adds, point_to(numbers)))
        return numbers

    def add(self, texts: Texts) -> Int64s:
        """Return the number of each text, int64[n]. New texts get the next numbers."""
        return self.find(texts, adds=True)

    def _reserve(self, texts: int, size: int) -> None:
        count, used = self._count, self.size
        self._numbers.reserve(count + texts)
        if count + texts >= len(self._edges):
            self._edges = np.concatenate((self._edges, np.empty(max(len(self._edges), texts), np.int64)))
        if used + size > len(self._memory):
            self._memory = np.concatenate((self._memory, np.empty(max(len(self._memory), size), np.uint8)))
