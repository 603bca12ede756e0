"""Numbers texts from 0, in the order in which they are added (``table.c``)."""

import os
from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, Function, bind
from jobmeter.kernel.library import pointer

Int64s = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)

_ARRAYS = [PLACE, PLACE, SIZE, PLACE, PLACE, SIZE, *[PLACE] * 3, SIZE, PLACE]
_FIND = bind("jobmeter_table_find", [DATA, *_ARRAYS])
_ADD = bind("jobmeter_table_add", [DATA, *_ARRAYS], SIZE)
_PLACE_ALL = bind("jobmeter_table_place", [PLACE, SIZE, PLACE, SIZE])

_FIRST_TEXTS, _FIRST_BYTES = 1_024, 65_536
_SPARSE = 2
"""Hash slots for each text, at least."""


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
    def of(cls, texts: Sequence[bytes]) -> "Texts":
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
        self._slots = np.zeros(_SPARSE * _FIRST_TEXTS, np.uint32)
        self._hashes = np.empty(_FIRST_TEXTS, np.uint64)
        self._edges = np.zeros(_FIRST_TEXTS + 1, np.int64)
        self._memory = np.empty(_FIRST_BYTES, np.uint8)
        self._count = 0

    def __len__(self) -> int:
        """Return how many texts have a number."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of all texts together."""
        return int(self._edges[self._count])

    def find(self, texts: Texts) -> Int64s:
        """Return the number of each text, int64[n]; -1 for an unknown text."""
        return self._call(_FIND, texts)[0]

    def add(self, texts: Texts) -> Int64s:
        """Return the number of each text, int64[n]. New texts get the next numbers."""
        self._reserve(len(texts), int((texts.end - texts.begin).sum()))
        numbers, count = self._call(_ADD, texts)
        self._count = int(count)
        return numbers

    def _call(self, function: Function, texts: Texts) -> tuple[Int64s, int]:
        count = len(texts)
        inside = len(texts.end) == count and bool((texts.begin >= 0).all() and (texts.begin <= texts.end).all())
        if not inside or int(texts.end.max(initial=0)) > len(texts.data):
            raise ValueError("a text lies outside of its data")
        numbers = np.empty(count, np.int64)
        inputs = (texts.data, pointer(texts.begin), pointer(texts.end), count, pointer(self._key))
        slots = (pointer(self._slots), len(self._slots))
        memory = (pointer(self._hashes), pointer(self._edges), pointer(self._memory), self._count)
        return numbers, function(*inputs, *slots, *memory, pointer(numbers))

    def _reserve(self, texts: int, size: int) -> None:
        count, used = self._count, self.size
        if count + texts > len(self._hashes):
            room = max(2 * len(self._hashes), count + texts)
            self._hashes = _grow(self._hashes, count, room)
            self._edges = _grow(self._edges, count + 1, room + 1)
        if used + size > len(self._memory):
            self._memory = _grow(self._memory, used, max(2 * len(self._memory), used + size))
        if _SPARSE * (count + texts) > len(self._slots):
            self._slots = np.zeros(1 << (_SPARSE * (count + texts) - 1).bit_length(), np.uint32)
            _PLACE_ALL(pointer(self._slots), len(self._slots), pointer(self._hashes), count)


def _grow(array: NDArray[T], used: int, room: int) -> NDArray[T]:
    grown = np.empty(room, array.dtype)
    grown[:used] = array[:used]
    return grown
