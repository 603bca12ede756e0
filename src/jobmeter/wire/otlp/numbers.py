"""Short codes for values that requests repeat, so that keys of series stay short."""

import itertools
import struct
from collections.abc import Hashable

WIDTH = 8
"""Bytes of each text."""
_PACK = struct.Struct("<Q").pack
_MOST = 1_000_000
_MOST_BYTES = 64 * 2**20


class Numbers:
    """A number for each value, as ``WIDTH`` bytes, the same in every request. Safe for several threads.

    With too many values all are dropped; a number is never used twice.
    """

    def __init__(self, bound: int = _MOST_BYTES) -> None:
        """``bound``: bytes of all values together, about."""
        self._bound = bound
        self._numbers: dict[Hashable, bytes] = {}
        self._next = itertools.count()
        self._bytes = 0

    @property
    def size(self) -> int:
        """About how many bytes the values take."""
        return self._bytes

    def of(self, value: Hashable, size: int) -> bytes:
        """The number; ``size``: about how many bytes the value takes."""
        numbers = self._numbers
        found = numbers.get(value)
        if found is None:
            if len(numbers) > _MOST or self._bytes > self._bound:
                self._numbers = numbers = {}
                self._bytes = 0
            # If two threads add the same value, the first number wins.
            found = numbers.setdefault(value, _PACK(next(self._next)))
            self._bytes += size
        return found
