"""A cache of the series lists of frames, by their bytes: an agent sends the same list every time."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from jobmeter.model.batch import Uint32s
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesList, SeriesTable, find_distinct

_MOST_BYTES = 64 * 2**20
_DIGEST_BYTES = 24
_COST = 1_300
"""Fixed bytes of a cached list, about."""
_SERIES_COST = 34
"""Bytes of each series in a cached list, about."""


class ListedSeries(msgspec.Struct, frozen=True, eq=False):
    """A list of series. ``series``: each series once. ``places`` uint32[n]: the position of each descriptor's series.

    ``once``: no series repeats. ``generation`` is the generation of the table with the series objects. ``digest`` is
    ``digest_list`` of the list's bytes.
    """

    series: SeriesList
    places: Uint32s
    once: bool
    generation: int
    digest: bytes


class SeriesListCache:
    """Series lists, by their bytes and the project that replaces an empty one. Safe for several threads.

    Above ``bound`` bytes, the least recently used lists are dropped. Lists share the series objects of ``table``. A
    list is no longer valid when the table's generation changes.
    """

    def __init__(self, table: SeriesTable, bound: int = _MOST_BYTES) -> None:
        self._table = table
        self._bound = bound
        self._lock = threading.Lock()
        self._lists: OrderedDict[tuple[str, bytes], ListedSeries] = OrderedDict()
        self._keys: dict[tuple[str, bytes], tuple[str, bytes]] = {}
        """Key of each list by its project and its digest."""
        self.size = 0
        """Bytes of all cached lists, about."""

    def get(self, project: str, data: bytes) -> ListedSeries | None:
        """Return the list cached under these bytes. None if there is no list."""
        with self._lock:
            return self._get((project, data))

    def find(self, project: str, digest: bytes) -> ListedSeries | None:
        """Return the list whose bytes have this ``digest_list``. None if there is no list."""
        with self._lock:
            key = self._keys.get((project, digest))
            return None if key is None else self._get(key)

    def _get(self, key: tuple[str, bytes]) -> ListedSeries | None:
        found = self._lists.get(key)
        if found is None or found.generation != self._table.generation:
            return None
        self._lists.move_to_end(key)
        return found

    def put(self, project: str, data: bytes, series: Sequence[Series]) -> ListedSeries:
        """Cache a list of series under these bytes."""
        generation = self._table.generation
        own, places = find_distinct(self._table.intern(series))
        once = np.arange(len(series), dtype=np.uint32)
        digest = digest_list(data)
        made = ListedSeries(own, once if places is None else places, places is None, generation, digest)
        key = project, data
        with self._lock:
            self._drop(key)
            self._lists[key] = made
            self._keys[project, digest] = key
            self.size += _cost(key, made)
            while self.size > self._bound:
                self._drop(next(iter(self._lists)))
        return made

    def _drop(self, key: tuple[str, bytes]) -> None:
        dropped = self._lists.pop(key, None)
        if dropped is not None:
            del self._keys[key[0], dropped.digest]
            self.size -= _cost(key, dropped)


def digest_list(data: bytes) -> bytes:
    """Return a digest that identifies the bytes of a list, also among lists that a sender has made up."""
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _cost(key: tuple[str, bytes], found: ListedSeries) -> int:
    return len(key[1]) + _COST + _SERIES_COST * len(found.series)
