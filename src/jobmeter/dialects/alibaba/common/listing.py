"""Sorts the records of a list, and removes their unknown fields."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from jobmeter.errors import NotFoundError
from jobmeter.model.job import JobView
from jobmeter.model.time import SECOND

CONTAINER = "main"
"""The single container of an instance: output of its processes is stored by replica."""


def replicas_named(view: JobView, instance: str, field: str = "InstanceId") -> frozenset[str]:
    """Return the replica of an instance: by any attempt's pod, by ``<job>-<replica>``, or by its own name.

    Empty for an empty text. Raises NotFoundError (``instance``) in the words of the vendor's ``field``.
    """
    if not instance:
        return frozenset()
    for replica in view.replicas:
        if instance in {replica.pod_id, f"{view.job.id}-{replica.name}", replica.name}:
            return frozenset({replica.name})
    raise NotFoundError(f"The specified {field} {instance} does not exist.", "instance", instance)


def stamp(time_ms: int | None) -> str:
    """Format a time as ``2026-11-20T15:33:56Z``; empty for no time."""
    return "" if time_ms is None else f"{datetime.fromtimestamp(time_ms // SECOND, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_plain(time_ms: int) -> str:
    """Format a time as ``2026-11-20 15:33:56`` (UTC), the form of events."""
    return f"{datetime.fromtimestamp(time_ms // SECOND, tz=UTC):%Y-%m-%d %H:%M:%S}"


def seconds(start: int | None, end: int | None, now_ms: int) -> float:
    """Return the seconds from start to end, or until now; 0 before the start."""
    return 0.0 if start is None else max(0, (now_ms if end is None else end) - start) / SECOND


T = TypeVar("T")


def sort_records(records: Iterable[T], key: Callable[[T], Any], *, descending: bool) -> list[T]:
    """Return records sorted by a key. Records without a key (None) come last in both directions. The sort is stable."""
    keyed = [(key(record), record) for record in records]
    present = sorted((one for one in keyed if one[0] is not None), key=lambda one: one[0], reverse=descending)
    return [record for _, record in present] + [record for found, record in keyed if found is None]


def drop_empty(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a record: neither None nor an empty text."""
    return {name: value for name, value in item.items() if value is not None and value != ""}


def picked(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields that a record has."""
    return {name: given[name] for name in names if given.get(name) is not None}
