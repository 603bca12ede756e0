"""Texts of which nearly every row has its own: found, sorted and searched without an object for each."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.dictionary_column import Mask, rows_with
from jobmeter.registry.columns.text_arena import TextArena
from jobmeter.registry.columns.vector import Vector

_TOP = 2**62
_STEP = 2**40
"""How far apart the ranks of two texts lie at first."""
_CLOSE = 2**16
"""How far behind its left neighbour a new text comes: ids that count upwards fill a gap from the left."""
_MOST_NEAR = 100_000


class Names:
    """One text a row. Distinct texts have a number, and a rank that tells their order of bytes."""

    def __init__(self, rows: int = 0) -> None:
        """``rows`` says for how many rows to make room."""
        self._texts = TextArena()
        self._folded: TextArena | None = None
        self._rows: Vector[np.int32] = Vector(np.int32, rows)
        self._ranks: Vector[np.int64] = Vector(np.int64, rows)
        self._order: NDArray[np.int32] = np.zeros(0, np.int32)
        self._near: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, text: str) -> int:
        """The number of a text, before ``end_load``."""
        number = self._near.get(text)
        if number is None:
            number = self._near[text] = self._append(text)
        return number

    def end_load(self) -> None:
        """Put what was taken in order: texts come by ``add`` from now on."""
        texts = list(self._near)
        self._order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int32)
        self._near = {}
        self._spread()

    def add(self, texts: Iterable[str]) -> dict[str, int]:
        """The number of each text; those that are new are taken in."""
        found, fresh = {}, []
        for text in set(texts):
            number = self.number(text)
            if number is None:
                fresh.append(text)
            else:
                found[text] = number
        if fresh:
            found.update(self._insert(sorted(fresh)))
        return found

    def number(self, text: str) -> int | None:
        """The number of a text; None for one that no row ever had."""
        codes = self._near.get(text)
        if codes is not None:
            return codes
        encoded = text.encode("utf-8", "surrogatepass")
        place = self._place(encoded)
        if place == len(self._order) or self._texts[int(self._order[place])] != encoded:
            return None
        number = int(self._order[place])
        self._remember(text, number)
        return number

    def set(self, row: int, number: int) -> None:
        """Give a row the text of that number."""
        self._rows[row] = number

    def put(self, row: int, numbers: Sequence[int]) -> None:
        """Give the rows from ``row`` on the texts of those numbers."""
        self._rows.put(row, numbers)

    def of(self, rows: NDArray[np.int32], count: int) -> list[str]:
        """The texts of some of the first rows."""
        return self.texts(self.numbers(count)[rows])

    def texts(self, numbers: NDArray[np.int32]) -> list[str]:
        """The texts of those numbers."""
        return self._texts.texts(numbers)

    def numbers(self, count: int) -> NDArray[np.int32]:
        """The number of each of the first rows' texts."""
        return self._rows.first(count)

    def ranks(self) -> NDArray[np.int64]:
        """By number: larger for a text that comes later in the order of bytes."""
        return self._ranks.first(len(self))

    def among(self, texts: Sequence[str], count: int) -> Mask:
        """Which of the first rows have one of those texts."""
        selected = [number for text in texts if (number := self.number(text)) is not None]
        return rows_with(selected, self.numbers(count), len(self))

    def holding(self, parts: Iterable[str], count: int) -> Mask:
        """Which of the first rows have a text that holds one of those folded parts, without regard to case."""
        heap = self._texts if self._folded is None else self._folded
        table = np.zeros(max(1, len(self)), np.bool_)
        for part in parts:
            table[: len(self)] |= heap.holding(part.encode("utf-8", "surrogatepass"))
        found: Mask = table[self.numbers(count)]
        return found

    def _append(self, text: str) -> int:
        folded = text.casefold()
        if self._folded is None and folded != text:
            # Up to here each text was its own fold.
            self._folded = TextArena()
            for number in range(len(self._texts)):
                self._folded.append(self._texts[number])
        if self._folded is not None:
            self._folded.append(folded.encode())
        return self._texts.append(text.encode())

    def _insert(self, texts: Sequence[str]) -> dict[str, int]:
        places = np.array([self._place(text.encode()) for text in texts], np.int64)
        numbers = [self._append(text) for text in texts]
        room = self._rank(places, numbers)
        self._order = np.insert(self._order, places, np.array(numbers, np.int32))
        if not room:
            self._spread()
        for text, number in zip(texts, numbers, strict=True):
            self._remember(text, number)
        return dict(zip(texts, numbers, strict=True))

    def _rank(self, places: NDArray[np.int64], numbers: Sequence[int]) -> bool:
        """Give new texts, in order, ranks between those of their neighbours; False where there is no room for them."""
        begin = 0
        while begin < len(numbers):
            place = int(places[begin])
            end = begin + int(np.searchsorted(places[begin:], place, "right"))
            left = int(self._ranks[int(self._order[place - 1])]) if place else 0
            right = int(self._ranks[int(self._order[place])]) if place < len(self._order) else _TOP
            step = min((right - left) // (end - begin + 1), _CLOSE)
            if not step:
                return False
            for index in range(begin, end):
                self._ranks[numbers[index]] = left + step * (index - begin + 1)
            begin = end
        return True

    def _spread(self) -> None:
        step = min(_STEP, _TOP // (len(self) + 1))
        self._ranks.first(len(self))[self._order] = np.arange(1, len(self) + 1, dtype=np.int64) * step

    def _place(self, text: bytes) -> int:
        """How many of the texts come before that one."""
        low, high = 0, len(self._order)
        while low < high:
            middle = (low + high) // 2
            if self._texts[int(self._order[middle])] < text:
                low = middle + 1
            else:
                high = middle
        return low

    def _remember(self, text: str, number: int) -> None:
        if len(self._near) >= _MOST_NEAR:
            self._near.clear()
        self._near[text] = number
