"""Labels, and the fields of dialects, as columns: the JSON of each value, each distinct value stored once."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from jobmeter.model.job import Operator
from jobmeter.registry.columns.dictionary_column import DictionaryColumn, Mask
from jobmeter.registry.columns.vector import ColumnVector
from jobmeter.registry.conditions import Field, Predicate

MOST_FIELDS = 200
MOST_VALUES = 2_000_000
"""Most distinct values of all fields together; one field may have half of them, else it is not stored."""
MOST_BYTES = 512
"""Longest value, in bytes of JSON; a field with a longer one is not stored."""

_DEPTH = {"labels": 2, "extra": 3}
"""Number of names that select the column of a field; further names select parts of its values."""
_LABELS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_EXTRA = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])


class Fields:
    """The values of every field by row, except for fields that ``stores`` denies."""

    def __init__(self, rows: int = 0) -> None:
        """``rows`` is the number of rows to make room for."""
        self._room = rows
        self._columns: dict[Field, DictionaryColumn[bytes]] = {}
        self._odd: dict[Field, list[int]] = {}
        self._left: set[Field] = set()
        self._more = False
        self._values = 0
        self._digests: dict[str, ColumnVector[np.int64]] = {
            name: ColumnVector(np.int64, rows) for name in ("labels", "extra")
        }

    def set(self, row: int, labels: str | None, extra: str | None) -> None:
        """Set the labels and the dialects' fields of a row, from their stored JSON."""
        for kind, text in (("labels", labels), ("extra", extra)):
            digest = hash(text) if text else 0
            codes = self._digests[kind]
            before = codes.get_first(row + 1)[row]
            if before == digest:
                continue
            codes[row] = digest
            given = dict(_read(kind, text))
            if before:
                for field, column in self._columns.items():
                    if field[0] == kind and field not in given:
                        column.set(row, b"")
            for field, value in given.items():
                number = self._number(field, value)
                if number is not None:
                    self._columns[field].set_at((row,), (number,))

    def put(self, first: int, labels: Sequence[str | None], extra: Sequence[str | None]) -> None:
        """Set the labels and fields of new rows from ``first`` on."""
        for kind, texts in (("labels", labels), ("extra", extra)):
            self._digests[kind].put(first, [hash(text) if text else 0 for text in texts])
            found: dict[Field, tuple[list[int], list[int]]] = {}
            for row, text in enumerate(texts, first):
                for field, value in _read(kind, text):
                    number = self._number(field, value)
                    if number is not None:
                        rows, numbers = found.setdefault(field, ([], []))
                        rows.append(row)
                        numbers.append(number)
            for field, (rows, numbers) in found.items():
                if field in self._columns:
                    self._columns[field].set_at(rows, numbers)

    def stores(self, field: Field) -> bool:
        """Return False for a field whose values must be read from the database."""
        outer = field[: _DEPTH[field[0]]]
        return outer in self._columns or not (self._more or outer in self._left)

    def mark_meeting(self, predicate: Predicate, count: int) -> Mask:
        """Mark the first ``count`` rows whose value fits the predicate."""
        depth = _DEPTH[predicate.field[0]]
        field, inner = predicate.field[:depth], predicate.field[depth:]
        column = self._columns.get(field)
        if column is None:
            return np.zeros(count, np.bool_)
        sought: Iterable[int] = range(1, len(column.values))
        found: list[int] = []
        if predicate.operator is Operator.IN and not inner:
            # Equal values are found by their JSON, without parsing each: a text, or a number as it is written.
            found = column.find_codes(form for value in predicate.texts for form in _forms(value))
            sought = self._odd[field]
        elif predicate.operator is Operator.CONTAINS and not inner:
            sought = {*column.find_codes_holding(predicate.texts), *self._odd[field]} - {0}
        found += [number for number in sought if predicate.fits_json(column.values[number], inner)]
        return column.mark_numbers(sorted(set(found)), count)

    def _number(self, field: Field, value: bytes) -> int | None:
        """Return the number of a value in its field's column; None for a field that is not stored.

        Creates a missing column.
        """
        column = self._columns.get(field)
        if column is None:
            if field in self._left or self._more:
                return None
            if len(self._columns) >= MOST_FIELDS:
                self._more = True
                return None
            column = self._columns[field] = DictionaryColumn(b"", self._room)
            self._odd[field] = []
        before = len(column.values)
        number = column.take(value)
        if number == before:
            self._values += 1
            if _is_odd(value):
                self._odd[field].append(number)
            if len(value) > MOST_BYTES or number * 2 > MOST_VALUES or self._values > MOST_VALUES:
                self._leave(field)
                return None
        return number

    def _leave(self, field: Field) -> None:
        self._values -= len(self._columns.pop(field).values) - 1
        del self._odd[field]
        self._left.add(field)


def _is_odd(value: bytes) -> bool:
    """Return True if the JSON alone cannot decide equality with a text: a list, or a text with an escape."""
    return value[:1] in b"[{" or b"\\" in value


def _read(kind: str, text: str | None) -> Iterator[tuple[Field, bytes]]:
    if not text:
        return
    if kind == "labels":
        for name, value in _LABELS.decode(text).items():
            yield (kind, name), bytes(value)
        return
    for dialect, values in _EXTRA.decode(text).items():
        for key, value in values.items():
            yield (kind, dialect, key), bytes(value)


def _forms(value: str) -> Iterable[bytes]:
    yield msgspec.json.encode(value)
    # No text is written like a number or a truth value. Any other bare value is odd.
    if value in {"true", "false"} or (value[:1] in "-0123456789" and value):
        yield value.encode("utf-8", "surrogatepass")
