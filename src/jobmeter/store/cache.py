"""The cache of queries: intermediate results of one query that are valid for the next.

An entry has a name, and is valid while its validator is unchanged: the revision of the data it was made from. The cache
holds lists of series and rolled-up ranges (``jobmeter.store.window``). For ``jobmeter.query`` it holds layouts of jobs,
roll-up rows, values of past hours, and encoded answers.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import msgspec

BOUND = 256 * 2**20
"""Default bound in bytes."""
_ENTRY = 500
"""Bytes of an entry besides its value, about."""


class _Entry(msgspec.Struct, frozen=True, eq=False):
    validator: object
    value: Any
    size: int


class CacheStatistics(msgspec.Struct, frozen=True):
    """Bytes in use, about; and the numbers of entries, hits and misses."""

    bytes: int
    entries: int
    hits: int
    misses: int


class Cache:
    """Values by name; the least recently used ones are dropped first. Safe for several threads."""

    def __init__(self, bound: int = BOUND) -> None:
        """``bound``: bytes of all values together."""
        self._bound = bound
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = self._hits = self._misses = 0

    @property
    def statistics(self) -> CacheStatistics:
        """Return the size of the cache, and its hits and misses."""
        return CacheStatistics(self._bytes, len(self._entries), self._hits, self._misses)

    def get(self, name: Hashable, validator: object) -> Any | None:  # noqa: ANN401 - as it was put
        """Return the value of that name. None without a value, or if its validator differs."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.validator != validator:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(name)
            return entry.value

    def put(self, name: Hashable, validator: object, value: object, size: int) -> None:
        """Add or replace a value of about ``size`` bytes. ``validator`` was taken before the value was computed."""
        entry = _Entry(validator, value, size + _ENTRY)
        with self._lock:
            self._drop(name)
            if entry.size > self._bound:
                return
            self._entries[name] = entry
            self._bytes += entry.size
            while self._bytes > self._bound:
                self._drop(next(iter(self._entries)))

    def _drop(self, name: Hashable) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._bytes -= entry.size
