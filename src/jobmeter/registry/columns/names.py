"""A column with mostly distinct texts: found, sorted and searched without an object for each."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.dictionary_column import Mask, mark_rows
from jobmeter.registry.columns.text_arena import TextArena
from jobmeter.registry.columns.vector import ColumnVector

_TOP = 2**62
_STEP = 2**40
"""Initial distance between the ranks of two texts."""
_CLOSE = 2**16
"""Largest distance of a new text's rank from its left neighbour: ids that count upwards fill a gap from the left."""
_MOST_NEAR = 100_000


class NameColumn:
    """A text for each row. Distinct texts have a number, and a rank in byte order."""

    def __init__(self, rows: int = 0) -> None:
        """``rows`` is the number of rows to make room for."""
        self._texts = TextArena()
        self._folded: TextArena | None = None
        self._rows: ColumnVector[np.int32] = ColumnVector(np.int32, rows)
        self._ranks: ColumnVector[np.int64] = ColumnVector(np.int64, rows)
        self._order: NDArray[np.int32] = np.zeros(0, np.int32)
        self._near: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, text: str) -> int:
        """Return the number of a text while loading, before ``end_load``."""
        number = self._near.get(text)
        if number is None:
            number = self._near[text] = self._append(text)
        return number

    def end_load(self) -> None:
        """Sort the loaded texts. Afterwards ``add`` adds new texts."""
        texts = list(self._near)
        self._order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int32)
        self._near = {}
        self._spread()

    def add(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the number of each text; new texts are added."""
        found: dict[str, int] = {}
        fresh: dict[str, int] = {}
        for text in sorted(set(texts)):
            number = self._near.get(text)
            if number is None:
                place, number = self._find(text)
                if number is None:
                    fresh[text] = place
                    continue
                self._remember(text, number)
            found[text] = number
        if fresh:
            found.update(self._insert(fresh))
        return found

    def find_number(self, text: str) -> int | None:
        """Return the number of a text; None for a text that no row ever had."""
        codes = self._near.get(text)
        if codes is not None:
            return codes
        _, number = self._find(text)
        if number is not None:
            self._remember(text, number)
        return number

    def set(self, row: int, number: int) -> None:
        """Set the text number of a row."""
        self._rows[row] = number

    def put(self, row: int, numbers: Sequence[int]) -> None:
        """Set the text numbers of the rows from ``row`` on."""
        self._rows.put(row, numbers)

    def get_row_texts(self, rows: NDArray[np.int32], count: int) -> list[str]:
        """Return the texts of some of the first ``count`` rows."""
        return self.get_texts(self.get_numbers(count)[rows])

    def get_texts(self, numbers: NDArray[np.int32]) -> list[str]:
        """Return the texts with these numbers."""
        return self._texts.get_texts(numbers)

    def get_numbers(self, count: int) -> NDArray[np.int32]:
        """Return the text numbers of the first ``count`` rows."""
        return self._rows.get_first(count)

    def rank_numbers(self) -> NDArray[np.int64]:
        """Return the rank of each text number: larger ranks come later in byte order."""
        return self._ranks.get_first(len(self))

    def mark_among(self, texts: Sequence[str], count: int) -> Mask:
        """Mark the first ``count`` rows that have one of these texts."""
        selected = [number for text in texts if (number := self.find_number(text)) is not None]
        return mark_rows(selected, self.get_numbers(count), len(self))

    def mark_holding(self, parts: Iterable[str], count: int) -> Mask:
        """Mark the first ``count`` rows whose text contains one of these case-folded parts."""
        heap = self._texts if self._folded is None else self._folded
        table = np.zeros(max(1, len(self)), np.bool_)
        for part in parts:
            table[: len(self)] |= heap.mark_holding(part.encode("utf-8", "surrogatepass"))
        found: Mask = table[self.get_numbers(count)]
        return found

    def _append(self, text: str) -> int:
        folded = text.casefold()
        if self._folded is None and folded != text:
            # Each earlier text was equal to its folded form.
            self._folded = TextArena()
            for number in range(len(self._texts)):
                self._folded.append(self._texts[number])
        if self._folded is not None:
            self._folded.append(folded.encode())
        return self._texts.append(text.encode())

    def _insert(self, fresh: Mapping[str, int]) -> dict[str, int]:
        """Add sorted texts, each with the number of existing texts that sort before it."""
        texts, places = list(fresh), np.array(list(fresh.values()), np.int64)
        numbers = [self._append(text) for text in texts]
        room = self._rank(places, numbers)
        self._order = np.insert(self._order, places, np.array(numbers, np.int32))
        if not room:
            self._spread()
        for text, number in zip(texts, numbers, strict=True):
            self._remember(text, number)
        return dict(zip(texts, numbers, strict=True))

    def _rank(self, places: NDArray[np.int64], numbers: Sequence[int]) -> bool:
        """Give new texts, in order, ranks between their neighbours' ranks. Return False if there is no room."""
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
        self._ranks.get_first(len(self))[self._order] = np.arange(1, len(self) + 1, dtype=np.int64) * step

    def _find(self, text: str) -> tuple[int, int | None]:
        """Return the number of texts that sort before ``text``, and the text's own number; None for an unknown text."""
        encoded = text.encode("utf-8", "surrogatepass")
        place = self._place(encoded)
        number = int(self._order[place]) if place < len(self._order) else None
        return place, None if number is None or self._texts[number] != encoded else number

    def _place(self, text: bytes) -> int:
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
