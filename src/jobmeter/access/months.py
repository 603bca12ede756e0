"""Calendar months in a time zone."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.time import SECOND

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

    def find_month(self, time_ms: int) -> Month:
        """Return the month that contains a moment."""
        local = datetime.fromtimestamp(time_ms / SECOND, UTC).astimezone(self._zone)
        for offset in (0, -1, 1):  # clock changes around midnight may shift the date to a neighbouring month
            found = self._month(local.year * 12 + local.month - 1 + offset)
            if time_ms in found:
                return found
        raise ValueError(f"no month contains the time {time_ms}")

    def parse_month(self, name: str) -> Month:
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
