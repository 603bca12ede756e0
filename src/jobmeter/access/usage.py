"""Count the calls of each account, and write the counts to the registry every second."""

import secrets
import threading
from collections.abc import Callable, Sequence

from jobmeter.access.months import Calendar
from jobmeter.model.time import Clock
from jobmeter.model.usage import Usage

FLUSH_SECONDS, RETRY_SECONDS = 1.0, 10.0

_Counts = dict[tuple[str, str, str, str, bool], int]
"""Calls by month, account, API, operation, and failure."""


class UsageMeter:
    """Counter of calls: each counts once, when it is answered, in the month of its answer. Thread-safe.

    A call counts for the account of its key once its credential is verified, whatever its result. A crash loses counts
    not yet written: a second's calls, or those since the registry last answered.
    """

    name = "usage"

    def __init__(self, add: Callable[[str, int, Sequence[Usage], int], None], clock: Clock, calendar: Calendar) -> None:
        """``add`` adds counts to the registry, as ``UsageTable.add`` does."""
        self.interval = FLUSH_SECONDS
        self._add = add
        self._clock = clock
        self._calendar = calendar
        self._month = calendar.find_month(clock.now_ms())
        self._lock = threading.Lock()
        self._counts: _Counts = {}
        self._flushing = threading.Lock()
        self._writer = secrets.token_hex(8)
        self._batch: tuple[int, _Counts] = (0, {})

    def count(self, account: str, api: str, operation: str, *, failed: bool) -> None:
        """Count a call of an account to an operation of an API."""
        now_ms = self._clock.now_ms()
        month = self._month
        if not month.start_ms <= now_ms < month.end_ms:
            month = self._month = self._calendar.find_month(now_ms)
        key = (month.name, account, api, operation, failed)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1

    def round(self) -> None:
        """Write the counts."""
        self.interval = RETRY_SECONDS
        self.flush()
        self.interval = FLUSH_SECONDS

    def flush(self) -> None:
        """Write the counts so far. Raises UnavailableError; the next call tries again."""
        with self._flushing:
            self._write()
            with self._lock:
                counts, self._counts = self._counts, {}
            self._batch = self._batch[0] + 1, counts
            self._write()

    def _write(self) -> None:
        """Add the batch to the registry.

        A batch of unknown outcome is sent again under its number, and counts once.
        """
        number, counts = self._batch
        if counts:
            self._add(self._writer, number, _rows(counts), self._clock.now_ms())
            self._batch = number, {}


def _rows(counts: _Counts) -> list[Usage]:
    calls: dict[tuple[str, str, str, str], list[int]] = {}
    for (*names, failed), count in counts.items():
        month, account, api, operation = names
        both = calls.setdefault((month, account, api, operation), [0, 0])
        both[0] += count
        both[1] += count if failed else 0
    return [
        Usage(month=month, account=account, api=api, operation=operation, calls=both[0], failed=both[1])
        for (month, account, api, operation), both in calls.items()
    ]
