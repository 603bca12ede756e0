"""A cache of the series lists of frames, by their bytes: an agent sends the same list every time."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Uint32s
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesList, SeriesTable, find_distinct

_MOST_BYTES = 64 * 2**20
_COST = 1_000
"""Fixed bytes of a cached list, about."""
_SERIES_COST = 34
"""Bytes of each series in a cached list, about."""


class ListedSeries(msgspec.Struct, frozen=True, eq=False):
    """A list of series. ``series``: each series once. ``places`` uint32[n]: the position of each descriptor's series.

    ``once``: no series repeats. ``generation`` is that of the table with the series objects.
    """

    series: SeriesList
    places: Uint32s
    once: bool
    generation: int


class SeriesListCache:
    """Series lists, by their bytes and the project that replaces an empty one. Safe for several threads.

    Above ``bound`` bytes, the least recently used lists are dropped. Lists share the series objects of ``table``, and
    end with its generation.
    """

    def __init__(self, table: SeriesTable, bound: int = _MOST_BYTES) -> None:
        self._table = table
        self._bound = bound
        self._lock = threading.Lock()
        self._lists: OrderedDict[tuple[str, bytes], ListedSeries] = OrderedDict()
        self.size = 0
        """Bytes of all cached lists, about."""

    def get(self, project: str, data: bytes) -> ListedSeries | None:
        """Return the list cached under these bytes. None if there is no list."""
        key = project, data
        with self._lock:
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
        made = ListedSeries(own, once if places is None else places, places is None, generation)
        key = project, data
        with self._lock:
            self._drop(key)
            self._lists[key] = made
            self.size += _cost(key, made)
            while self.size > self._bound:
                self._drop(next(iter(self._lists)))
        return made

    def _drop(self, key: tuple[str, bytes]) -> None:
        dropped = self._lists.pop(key, None)
        if dropped is not None:
            self.size -= _cost(key, dropped)


def _cost(key: tuple[str, bytes], found: ListedSeries) -> int:
    return len(key[1]) + _COST + _SERIES_COST * len(found.series)
