"""The cache of queries: results of one that are valid for the next.

An entry has a name and is valid while its validator is the same: what it was made from, as the store and the
registry name it. In it lie lists of series and which hours are rolled up (``jobmeter.store.window``), and of
``jobmeter.query`` the layouts of jobs, roll-up rows, values of hours that are over, and encoded answers.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import msgspec

BOUND = 256 * 2**20
"""Bytes, where no setting says more."""
_ENTRY = 500
"""What an entry takes besides its value, about."""


class _Entry(msgspec.Struct, frozen=True, eq=False):
    validator: object
    value: Any
    size: int


class CacheStatistics(msgspec.Struct, frozen=True):
    """Bytes in use, about; how often something was found, and how often not."""

    bytes: int
    entries: int
    hits: int
    misses: int


class Cache:
    """Values by name, the least recently used going first. Safe to use from any thread."""

    def __init__(self, bound: int = BOUND) -> None:
        """``bound``: bytes of all values together."""
        self._bound = bound
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = self._hits = self._misses = 0

    @property
    def statistics(self) -> CacheStatistics:
        """How much there is, and of how much use it was."""
        return CacheStatistics(self._bytes, len(self._entries), self._hits, self._misses)

    def get(self, name: Hashable, validator: object) -> Any | None:  # noqa: ANN401 - as it was put
        """The value of that name; None where there is none, or where its validator was another."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.validator != validator:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(name)
            return entry.value

    def put(self, name: Hashable, validator: object, value: object, size: int) -> None:
        """Add a value of about ``size`` bytes, or replace the one of that name. ``validator`` was taken before."""
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
