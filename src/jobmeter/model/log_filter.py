"""Filter of log lines, with order and page."""

from typing import Self

import msgspec
from msgspec.structs import replace

from jobmeter.model.event import Level
from jobmeter.model.log_tree import LogQuery


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of lines with ``start_ns <= time < end_ns``, in epoch nanoseconds; None is no bound.

    Empty fields match everything. ``query`` is in the language of ``jobmeter.model.log_query``. ``max_severity``
    excludes less severe lines, and lines with neither a severity nor a level. ``min_level`` excludes lines below it,
    and lines without a level. ``contains`` ignores case. ``descending`` gives the newest first. ``offset`` skips lines.
    ``count`` requests the totals too.
    """

    query: LogQuery | None = None
    max_severity: int | None = None
    replicas: frozenset[str] = frozenset()
    attempt: int | None = None
    stream: str = ""
    min_level: Level | None = None
    contains: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    descending: bool = False
    offset: int = 0
    limit: int = 100
    count: bool = False

    def continue_from(self, time_ns: int, passed: int) -> Self:
        """Return the filter from a moment on, without the first ``passed`` lines of that moment."""
        if self.descending:
            return replace(self, end_ns=time_ns + 1, offset=passed)
        return replace(self, start_ns=time_ns, offset=passed)
