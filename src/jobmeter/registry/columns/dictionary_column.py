"""A column with few distinct texts: each distinct text is stored once, and a row has its number."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.text_arena import TextArena
from jobmeter.registry.columns.vector import ColumnVector

_FEW = 5_000
"""Number of distinct texts above which one buffer is searched for all."""

T = TypeVar("T", str, bytes)
Mask = NDArray[np.bool_]


def mark_rows(selected: Sequence[int], numbers: NDArray[np.int32], distinct: int) -> Mask:
    """Return the rows with one of the selected numbers. ``numbers`` has the number of each row, below ``distinct``."""
    if len(selected) == 1:
        one: Mask = numbers == selected[0]
        return one
    table = np.zeros(max(1, distinct), np.bool_)
    table[selected] = True
    found: Mask = table[numbers]
    return found


class DictionaryColumn(Generic[T]):
    """A text for each row. A row that was never set has number 0, which is ``absent``."""

    def __init__(self, absent: T, rows: int = 0) -> None:
        """``rows`` is the number of rows to make room for."""
        self.values: list[T] = [absent]
        self.size = 0
        """Total length of the distinct texts."""
        self._numbers: dict[T, int] = {absent: 0}
        self._rows: ColumnVector[np.int32] = ColumnVector(np.int32, rows)
        self._ranks: NDArray[np.int64] = np.zeros(0, np.int64)
        self._folded: TextArena | None = None

    def set(self, row: int, value: T) -> None:
        """Set the text of a row."""
        self._rows[row] = self.take(value)

    def put(self, row: int, values: Iterable[T]) -> None:
        """Set the texts of the rows from ``row`` on."""
        self._rows.put(row, [self.take(value) for value in values])

    def set_at(self, rows: Sequence[int], numbers: Sequence[int]) -> None:
        """Set the text numbers of rows in ascending order."""
        self._rows.set_at(rows, numbers)

    def take(self, value: T) -> int:
        """Return the number of a text, adding it if it is new."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            self.size += len(value)
            if self._folded is not None:
                self._folded.append(_folded(value))
            elif len(self.values) > _FEW:
                self._folded = TextArena()
                for codes in self.values:
                    self._folded.append(_folded(codes))
        return number

    def get_text(self, row: int) -> T:
        """Return the text of a row."""
        return self.values[int(self._rows[row])]

    def get_numbers(self, count: int) -> NDArray[np.int32]:
        """Return the text numbers of the first ``count`` rows."""
        return self._rows.get_first(count)

    def find_codes(self, values: Iterable[T]) -> list[int]:
        """Return the numbers of those texts that any row has, or had."""
        return [number for value in values if (number := self._numbers.get(value)) is not None]

    def mark_numbers(self, numbers: Sequence[int], count: int) -> Mask:
        """Mark the first ``count`` rows that have one of these text numbers."""
        return mark_rows(numbers, self.get_numbers(count), len(self.values))

    def mark_among(self, texts: Iterable[T], count: int) -> Mask:
        """Mark the first ``count`` rows that have one of these texts."""
        return self.mark_numbers(self.find_codes(texts), count)

    def mark_holding(self, parts: Iterable[str], count: int) -> Mask:
        """Mark the first ``count`` rows whose text contains one of these case-folded parts."""
        return self.mark_numbers(self.find_codes_holding(parts), count)

    def find_codes_holding(self, parts: Iterable[str]) -> list[int]:
        """Return the numbers of the texts that contain one of these case-folded parts."""
        encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
        if self._folded is None:
            return [n for n, value in enumerate(self.values) if any(part in _folded(value) for part in encoded)]
        found = np.zeros(len(self.values), np.bool_)
        for part in encoded:
            found |= self._folded.mark_holding(part)
        numbers: list[int] = np.flatnonzero(found).tolist()
        return numbers

    def rank_numbers(self) -> NDArray[np.int64]:
        """Return the rank of each text number in byte order."""
        if len(self._ranks) != len(self.values):
            # Code points and the bytes of UTF-8 sort alike.
            order = sorted(range(len(self.values)), key=self.values.__getitem__)
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks


def _folded(value: str | bytes) -> bytes:
    return (value if isinstance(value, str) else value.decode()).casefold().encode()
