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
    """A number for each thing, as ``WIDTH`` bytes, the same in every request. Safe for several threads.

    When there are too many things all are forgotten; a number is never used twice.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, bytes] = {}
        self._next = itertools.count()
        self._bytes = 0

    def of(self, thing: Hashable, size: int) -> bytes:
        """The number; ``size``: about how many bytes the thing takes."""
        known = self._known
        found = known.get(thing)
        if found is None:
            if len(known) > _MOST or self._bytes > _MOST_BYTES:
                self._known = known = {}
                self._bytes = 0
            # Of two threads with the same thing the first one's number holds.
            found = known.setdefault(thing, _PACK(next(self._next)))
            self._bytes += size
        return found
