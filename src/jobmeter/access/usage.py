"""Count the calls of each account, and write the counts to the registry every second."""

import secrets
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.time import SECOND, Clock
from jobmeter.model.usage import Usage

_FIRST_YEAR, _LAST_YEAR = 1970, 9998


class Month(msgspec.Struct, frozen=True):
    """Month: its name, ``2026-11``, and its bounds ``[start_ms, end_ms)`` in epoch milliseconds."""

    name: str
    start_ms: int
    end_ms: int

    def __contains__(self, time_ms: int) -> bool:
        return self.start_ms <= time_ms < self.end_ms


class Calendar:
    """Months of one time zone. A month begins when local clocks first show its first midnight.

    If clocks skip that midnight, the month begins at the first moment after it.
    """

    def __init__(self, zone: str) -> None:
        """``zone`` is a name of the IANA time zone database. Raises ConfigurationError for any other name."""
        self.zone = zone
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"usage_zone {zone[:64]!r} is not a time zone such as Asia/Shanghai or UTC"
            ) from error

    def at(self, time_ms: int) -> Month:
        """Return the month that contains a moment."""
        local = datetime.fromtimestamp(time_ms / SECOND, UTC).astimezone(self._zone)
        for offset in (0, -1, 1):  # clock changes around midnight may shift the date to a neighbouring month
            found = self._month(local.year * 12 + local.month - 1 + offset)
            if time_ms in found:
                return found
        raise ValueError(f"no month contains the time {time_ms}")

    def named(self, name: str) -> Month:
        """Return the month of a name such as ``2026-11``. Raises InvalidRequestError (field ``month``)."""
        year, dash, month = name.partition("-")
        written = len(year) == 4 and len(month) == 2 and (year + month).isdecimal() and (year + month).isascii()
        if not dash or not written or not _FIRST_YEAR <= int(year) <= _LAST_YEAR or not 1 <= int(month) <= 12:
            raise InvalidRequestError(f"month {name[:20]!r} is not like 2026-11", "month")
        return self._month(int(year) * 12 + int(month) - 1)

    def _month(self, number: int) -> Month:
        year, month = divmod(number, 12)
        return Month(f"{year:04}-{month + 1:02}", self._start_ms(number), self._start_ms(number + 1))

    def _start_ms(self, number: int) -> int:
        year, month = divmod(number, 12)
        return round(datetime(year, month + 1, 1, tzinfo=self._zone).timestamp()) * SECOND


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
        self._month = calendar.at(clock.now_ms())
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
            month = self._month = self._calendar.at(now_ms)
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
