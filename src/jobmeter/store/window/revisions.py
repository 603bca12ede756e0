"""Numbers that change when the data of a job may have changed, for every process that caches such data."""

import threading
import zlib
from collections.abc import Collection, Hashable, Iterable

import numpy as np

from jobmeter.kernel.number_table import Allocate, allocate_zeros

SLOTS = 1 << 16
"""Number of slots. Keys with one slot are raised together."""


def compute_key(name: str) -> int:
    """Return the key of a name, equal in every process."""
    return zlib.crc32(name.encode())


KEYS = compute_key("/keys")
"""Key of the revision of all credentials. No job has this id, because ids contain no slash."""


class Revisions:
    """Revision numbers: one for each slot of 64-bit keys, one for all keys, and the newest number of all.

    One process raises them, many may read.

    Keys are digests of jobs or of other objects. Two keys may have one slot: then both are raised. Read a revision
    before the data that is cached under it.
    """

    def __init__(self, allocate: Allocate = allocate_zeros) -> None:
        self._numbers = allocate(SLOTS + 2, np.int64).data
        self._raising = threading.Lock()

    def get_revision(self, keys: Iterable[int] | None) -> Hashable:
        """Return a value that changes when any of these keys is raised; None for every key."""
        numbers = self._numbers
        if keys is None:
            return numbers[SLOTS + 1]
        return (numbers[SLOTS], *(numbers[key % SLOTS] for key in keys))

    def raise_all(self) -> None:
        """Change the revision of every key."""
        with self._raising:
            self._numbers[SLOTS] = self._count()

    def raise_some(self, keys: Collection[int]) -> None:
        """Change the revisions of these keys."""
        with self._raising:
            for key in keys:
                self._numbers[key % SLOTS] = self._count()

    def _count(self) -> int:
        self._numbers[SLOTS + 1] += 1
        return int(self._numbers[SLOTS + 1])
