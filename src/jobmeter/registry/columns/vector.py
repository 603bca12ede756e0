"""Growing arrays: one value for each row, rows numbered from 0."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)

_FIRST = 1024


class ColumnVector(Generic[N]):
    """A value for each row. A value that was never set is 0."""

    def __init__(self, kind: type[N], rows: int = 0) -> None:
        """``rows`` is the number of rows to make room for."""
        # Pages that were never written take no memory.
        self._values: NDArray[N] = np.zeros(max(rows, _FIRST), kind)

    def __getitem__(self, row: int) -> N:
        value: N = self._values[row]
        return value

    def __setitem__(self, row: int, value: int) -> None:
        if row >= len(self._values):
            self._reserve(row + 1)
        self._values[row] = value

    def put(self, row: int, values: Sequence[int]) -> None:
        """Set the values of the rows from ``row`` on."""
        self._reserve(row + len(values))
        self._values[row : row + len(values)] = values

    def set_at(self, rows: Sequence[int], values: Sequence[int]) -> None:
        """Set the values of rows in ascending order."""
        self._reserve(rows[-1] + 1)
        self._values[np.asarray(rows)] = values

    def get_first(self, count: int) -> NDArray[N]:
        """Return the values of the first ``count`` rows, as a view."""
        self._reserve(count)
        return self._values[:count]

    def _reserve(self, count: int) -> None:
        if count > len(self._values):
            larger: NDArray[N] = np.zeros(max(count, len(self._values) * 2), self._values.dtype)
            larger[: len(self._values)] = self._values
            self._values = larger
