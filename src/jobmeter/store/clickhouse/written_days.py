"""The last day for which each series' descriptor was written, looked up for thousands of series at once."""

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Int64s, Uint64s

_FIRST = 1 << 12
_LOAD = 3
_SHIFTS = (np.uint64(0), np.uint64(32))


class WrittenDays:
    """Series ids with a day each. Ids are digests, so their bits serve as hash slots.

    An id has two slots. The few ids whose two slots are taken are in a dictionary. Not safe for several threads.
    """

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        """Remove all ids."""
        self._ids = np.zeros(_FIRST, np.uint64)
        self._days = np.full(_FIRST, -1, np.int32)
        self._spilled: dict[int, int] = {}
        self._count = 0

    def older(self, ids: Uint64s, days: Int64s) -> NDArray[np.intp]:
        """Return the positions whose stored day is before the given one, or missing."""
        missing: NDArray[np.intp] = np.flatnonzero(days >= 0)
        for shift in _SHIFTS:
            at = self._places(ids[missing], shift)
            found = (self._ids[at] == ids[missing]) & (self._days[at] >= days[missing])
            missing = missing[~found]
            if not len(missing):
                return missing
        if not self._spilled:
            return missing
        pairs = zip(ids[missing].tolist(), days[missing].tolist(), strict=True)
        older: NDArray[np.bool_] = np.array([self._spilled.get(one, -1) < day for one, day in pairs], np.bool_)
        left: NDArray[np.intp] = missing[older]
        return left

    def put(self, ids: Uint64s, days: Int64s) -> None:
        """Store the days of these ids; each id comes once."""
        if _LOAD * (self._count + len(ids)) > len(self._ids):
            self._grow(self._count + len(ids))
        self._place(ids, days.astype(np.int32))

    def _place(self, ids: Uint64s, days: NDArray[np.int32]) -> None:
        for shift in _SHIFTS:
            at = self._places(ids, shift)
            mine = self._ids[at] == ids
            self._days[at[mine]] = days[mine]
            free = ~mine & (self._days[at] < 0)
            self._ids[at[free]] = ids[free]
            # The last writer of a slot wins.
            won = free & (self._ids[at] == ids)
            self._days[at[won]] = days[won]
            self._count += int(np.count_nonzero(won))
            left = ~(mine | won)
            ids, days = ids[left], days[left]
        new = [one for one in ids.tolist() if one not in self._spilled]
        self._count += len(new)
        self._spilled.update(zip(ids.tolist(), days.tolist(), strict=True))

    def _grow(self, count: int) -> None:
        there = self._days >= 0
        ids = np.concatenate([self._ids[there], np.fromiter(self._spilled, np.uint64, len(self._spilled))])
        spilled = np.fromiter(self._spilled.values(), np.int32, len(self._spilled))
        days = np.concatenate([self._days[there], spilled])
        size = len(self._ids)
        while size < _LOAD * count:
            size *= 2
        self._ids, self._days = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
        self._spilled, self._count = {}, 0
        self._place(ids, days)

    def _places(self, ids: Uint64s, shift: np.uint64) -> NDArray[np.intp]:
        return ((ids >> shift) & np.uint64(len(self._ids) - 1)).astype(np.intp)
