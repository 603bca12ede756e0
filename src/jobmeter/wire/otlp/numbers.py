"""Short texts for what comes again in every request, so that a key need not hold all of it."""

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

    When there are too many values all are forgotten; a number is never used twice.
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
            # Of two threads with the same value the first one's number is valid.
            found = numbers.setdefault(value, _PACK(next(self._next)))
            self._bytes += size
        return found
