"""Sorts the records of a list, and removes their unknown fields."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def sort_records(records: Iterable[T], key: Callable[[T], Any], *, descending: bool) -> list[T]:
    """Return records sorted by a key. Records without a key (None) come last in both directions. The sort is stable."""
    keyed = [(key(record), record) for record in records]
    present = sorted((one for one in keyed if one[0] is not None), key=lambda one: one[0], reverse=descending)
    return [record for _, record in present] + [record for found, record in keyed if found is None]


def drop_empty(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that are neither None nor an empty text."""
    return {name: value for name, value in item.items() if value is not None and value != ""}


def pick(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields that a record has."""
    return {name: given[name] for name in names if given.get(name) is not None}
