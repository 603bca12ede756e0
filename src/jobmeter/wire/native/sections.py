"""The series of a frame, known again by their bytes: an agent sends the same list with every round."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobmeter.model.batch import Uint32s
from jobmeter.model.roster import SeriesList, current
from jobmeter.model.series import Series

_MOST_BYTES = 64 * 2**20
_COST = 1_000
"""Bytes that a section takes beside its own, about."""
_SERIES_COST = 30
"""The same for each of its series."""


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """``series``: each once. ``places`` uint32[n]: which of them each descriptor is; None: each is its own."""

    series: SeriesList
    places: Uint32s | None


class Sections:
    """Sections by their bytes and by what an empty project means. Safe for several threads.

    Those that were not asked for longest are forgotten when all together take 64 MiB.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bytes], Section] = OrderedDict()
        self._bytes = 0

    def find(self, project: str, data: bytes) -> Section | None:
        """The section, when it is known."""
        key = project, data
        roster = current()
        with self._lock:
            found = self._known.get(key)
            if found is None or found.series.roster is not roster:
                return None
            self._known.move_to_end(key)
            return found

    def keep(self, project: str, data: bytes, series: Sequence[Series]) -> Section:
        """Note what the descriptors of a section are."""
        section = _section(series)
        key = project, data
        with self._lock:
            self._drop(key)
            self._known[key] = section
            self._bytes += _cost(key, section)
            while self._bytes > _MOST_BYTES:
                self._drop(next(iter(self._known)))
        return section

    def _drop(self, key: tuple[str, bytes]) -> None:
        section = self._known.pop(key, None)
        if section is not None:
            self._bytes -= _cost(key, section)


def _cost(key: tuple[str, bytes], section: Section) -> int:
    return len(key[1]) + _COST + _SERIES_COST * len(section.series)


def _section(series: Sequence[Series]) -> Section:
    roster = current()
    numbers = roster.numbers(series)
    present, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    if len(present) == len(numbers):
        return Section(SeriesList(roster, numbers), None)
    order = np.argsort(first)
    rank = np.empty(len(order), np.uint32)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    return Section(SeriesList(roster, present[order]), rank[places])


SECTIONS = Sections()
