"""A cache of the series lists of frames, by a digest of their bytes: an agent sends the same list every time."""

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from jobmeter.model.batch import Uint32s
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesList, SeriesTable, find_distinct

_MOST_BYTES = 64 * 2**20
DIGEST_KEY = os.urandom(32)
"""Secret of this server's digests. Worker processes get it from the storage process."""
_NONCE = bytes(12)
_COST = 1_300
"""Fixed bytes of a cached list, about."""
_SERIES_COST = 34
"""Bytes of each series in a cached list, about."""


class ListDigester:
    """Computes digests that identify the bytes of a list, also among lists that a sender has made up.

    A digest is the GMAC of the bytes: 16 bytes, ten times as fast as a hash without a secret. Two lists share a digest
    with a probability below 2**-100, because no sender knows the secret, or sees a digest. So one nonce suffices.
    """

    def __init__(self, key: bytes = DIGEST_KEY) -> None:
        self._cipher = AESGCM(key)

    def digest(self, data: memoryview) -> bytes:
        """Return the digest of some bytes."""
        return self._cipher.encrypt(_NONCE, b"", data)


class ListedSeries(msgspec.Struct, frozen=True, eq=False):
    """A list of series. ``series``: each series once. ``places`` uint32[n]: the position of each descriptor's series.

    ``once``: no series repeats. ``generation`` is the generation of the table with the series objects.
    """

    series: SeriesList
    places: Uint32s
    once: bool
    generation: int


class SeriesListCache:
    """Series lists, by the digest of their bytes and the project that replaces an empty one. Safe for several threads.

    Above ``bound`` bytes, the least recently used lists are dropped. Lists share the series objects of ``table``. A
    list is no longer valid when the table's generation changes.
    """

    def __init__(self, table: SeriesTable, bound: int = _MOST_BYTES) -> None:
        self.digester = ListDigester()
        self._table = table
        self._bound = bound
        self._lock = threading.Lock()
        self._lists: OrderedDict[tuple[str, bytes], ListedSeries] = OrderedDict()
        self.size = 0
        """Bytes of all cached lists, about."""

    def get(self, project: str, digest: bytes, count: int) -> ListedSeries | None:
        """Return the list of ``count`` descriptors whose bytes have this digest. None if there is no list."""
        with self._lock:
            found = self._lists.get((project, digest))
            if found is None or found.generation != self._table.generation or len(found.places) != count:
                return None
            self._lists.move_to_end((project, digest))
            return found

    def put(self, project: str, digest: bytes, series: Sequence[Series]) -> ListedSeries:
        """Cache a list of series under the digest of its bytes."""
        generation = self._table.generation
        own, places = find_distinct(self._table.intern(series))
        once = np.arange(len(series), dtype=np.uint32)
        made = ListedSeries(own, once if places is None else places, places is None, generation)
        key = project, digest
        with self._lock:
            self._drop(key)
            self._lists[key] = made
            self.size += _cost(made)
            while self.size > self._bound:
                self._drop(next(iter(self._lists)))
        return made

    def _drop(self, key: tuple[str, bytes]) -> None:
        dropped = self._lists.pop(key, None)
        if dropped is not None:
            self.size -= _cost(dropped)


def _cost(found: ListedSeries) -> int:
    return _COST + _SERIES_COST * len(found.series)
