"""Texts of which many rows have the same: each distinct one is stored once, and a row has its number."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.text_arena import TextArena
from jobmeter.registry.columns.vector import Vector

_FEW = 5_000
"""More distinct texts than these are searched in one buffer."""

T = TypeVar("T", str, bytes)
Mask = NDArray[np.bool_]


def rows_with(selected: Sequence[int], numbers: NDArray[np.int32], distinct: int) -> Mask:
    """Which rows have one of the selected numbers; ``numbers`` is that of each, below ``distinct``."""
    if len(selected) == 1:
        one: Mask = numbers == selected[0]
        return one
    table = np.zeros(max(1, distinct), np.bool_)
    table[selected] = True
    found: Mask = table[numbers]
    return found


class DictionaryColumn(Generic[T]):
    """One text a row; number 0 is ``absent``, what a row has that was never set."""

    def __init__(self, absent: T, rows: int = 0) -> None:
        """``rows`` says for how many rows to make room."""
        self.values: list[T] = [absent]
        self.size = 0
        """How long the distinct texts are together."""
        self._numbers: dict[T, int] = {absent: 0}
        self._rows: Vector[np.int32] = Vector(np.int32, rows)
        self._ranks: NDArray[np.int64] = np.zeros(0, np.int64)
        self._folded: TextArena | None = None

    def set(self, row: int, value: T) -> None:
        """Give a row its text."""
        self._rows[row] = self.take(value)

    def put(self, row: int, values: Iterable[T]) -> None:
        """Give the rows from ``row`` on their texts."""
        self._rows.put(row, [self.take(value) for value in values])

    def set_at(self, rows: Sequence[int], numbers: Sequence[int]) -> None:
        """Give rows, in ascending order, the texts of those numbers."""
        self._rows.set_at(rows, numbers)

    def take(self, value: T) -> int:
        """The number of a text, which is stored from now on."""
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

    def of(self, row: int) -> T:
        """The text of a row."""
        return self.values[int(self._rows[row])]

    def numbers(self, count: int) -> NDArray[np.int32]:
        """The number of each of the first rows' texts."""
        return self._rows.first(count)

    def codes(self, values: Iterable[T]) -> list[int]:
        """The numbers of those of the texts that some row has, or had."""
        return [number for value in values if (number := self._numbers.get(value)) is not None]

    def at(self, numbers: Sequence[int], count: int) -> Mask:
        """Which of the first rows have the text of one of those numbers."""
        return rows_with(numbers, self.numbers(count), len(self.values))

    def among(self, texts: Iterable[T], count: int) -> Mask:
        """Which of the first rows have one of those texts."""
        return self.at(self.codes(texts), count)

    def holding(self, parts: Iterable[str], count: int) -> Mask:
        """Which of the first rows have a text that holds one of those folded parts, without regard to case."""
        return self.at(self.codes_holding(parts), count)

    def codes_holding(self, parts: Iterable[str]) -> list[int]:
        """The numbers of the texts that hold one of those folded parts, without regard to case."""
        encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
        if self._folded is None:
            return [n for n, value in enumerate(self.values) if any(part in _folded(value) for part in encoded)]
        found = np.zeros(len(self.values), np.bool_)
        for part in encoded:
            found |= self._folded.holding(part)
        numbers: list[int] = np.flatnonzero(found).tolist()
        return numbers

    def ranks(self) -> NDArray[np.int64]:
        """By number: where its text stands in the order of bytes."""
        if len(self._ranks) != len(self.values):
            # Code points and the bytes of UTF-8 have one order.
            order = sorted(range(len(self.values)), key=self.values.__getitem__)
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks


def _folded(value: str | bytes) -> bytes:
    return (value if isinstance(value, str) else value.decode()).casefold().encode()
