"""Arrays that grow: one value a row, rows numbered from 0."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)

_FIRST = 1024


class Vector(Generic[N]):
    """One value a row. A value that was never set is 0."""

    def __init__(self, kind: type[N], rows: int = 0) -> None:
        """``rows`` says for how many to make room."""
        # Pages that nobody wrote to take no memory.
        self._held: NDArray[N] = np.zeros(max(rows, _FIRST), kind)

    def __getitem__(self, row: int) -> N:
        value: N = self._held[row]
        return value

    def __setitem__(self, row: int, value: int) -> None:
        if row >= len(self._held):
            self._reserve(row + 1)
        self._held[row] = value

    def put(self, row: int, values: Sequence[int]) -> None:
        """Set the values of the rows from ``row`` on."""
        self._reserve(row + len(values))
        self._held[row : row + len(values)] = values

    def set_at(self, rows: Sequence[int], values: Sequence[int]) -> None:
        """Set the values of those rows, which are in ascending order."""
        self._reserve(rows[-1] + 1)
        self._held[np.asarray(rows)] = values

    def first(self, count: int) -> NDArray[N]:
        """The values of the first ``count`` rows, as a view."""
        self._reserve(count)
        return self._held[:count]

    def _reserve(self, count: int) -> None:
        if count > len(self._held):
            larger: NDArray[N] = np.zeros(max(count, len(self._held) * 2), self._held.dtype)
            larger[: len(self._held)] = self._held
            self._held = larger
