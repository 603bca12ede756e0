"""Samples to the engine as columns, split where it needs it, and what makes them durable."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from clickhouse_connect.driver.client import Client

from jobmeter.kernel.decimals import Decimals
from jobmeter.store.clickhouse.descriptors import blocks
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.native import Column, encode, parts
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rows import DAYS, Rows, Table, by_days, descriptors_of, joined, portions
from jobmeter.store.clickhouse.sort_dedupe import sort_dedupe

_ROWS = 1 << 20
_MOST_ROWS = 1 << 22
"""Rows that are put in order together at most, about."""
_DAYS = 90
_SORTED = {"optimize_on_insert": 0}
_COLUMNS = ["job", "series", "time", "value", "number", "digits", *DAYS]


class CommitLog(Protocol):
    """What makes samples durable. Safe for any number of threads."""

    def append(self, group: Sequence[Rows]) -> None:
        """Return when all of the rows, which count in this order, are on disk, and the descriptors that come with them.

        Raises when they may not be.

        One sync for the whole group: who calls gathers the requests that share it (``jobmeter.ingest.commit``).
        """
        ...

    def pending(self) -> Pending:
        """Durable rows that may not be in the engine yet. Read them before the engine."""
        ...

    def flush(self, before_ms: int | None = None) -> None:
        """Return when what was appended before is in the engine: all of it, or at least what is older than a time.

        Raises UnavailableError where the engine does not take it.
        """
        ...

    def statistics(self) -> dict[str, int]:
        """See ``StoreStatistics.journal``."""
        ...

    def close(self) -> None:
        """Finish what is under way. A no-op the second time."""
        ...


class DirectInserts:
    """A ``CommitLog`` that inserts each group: for an engine whose disk is another machine's."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._decimals = Decimals()

    def append(self, group: Sequence[Rows]) -> None:
        """See ``CommitLog.append``."""
        with translated("keep samples"), self._pool.client() as client:
            _describe(client, group)
            for block in _blocks(group, joined, self._decimals):
                client.raw_insert("samples", _COLUMNS, encode(block), fmt="Native")

    def pending(self) -> Pending:
        """See ``CommitLog.pending``: nothing ever is."""
        return NOTHING

    def flush(self, before_ms: int | None = None) -> None:
        """See ``CommitLog.flush``: it is there already."""

    def statistics(self) -> dict[str, int]:
        """See ``CommitLog.statistics``."""
        return {}

    def close(self) -> None:
        """See ``CommitLog.close``."""


class Flusher:
    """Puts what waited in a journal into the embedded engine, sorted and each sample once, so that it need not."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._decimals = Decimals()

    def __call__(self, group: Sequence[Rows]) -> None:
        """Durable on return."""
        with translated("keep samples"), self._pool.client() as client:
            _describe(client, group)
            for block in _blocks(group, sort_dedupe, self._decimals):
                client.raw_insert("samples", _COLUMNS, parts(block), fmt="Native", settings=_SORTED)


def _describe(client: Client, group: Sequence[Rows]) -> None:
    """Insert the descriptors that come with some rows: before these, which nobody finds without."""
    for lines in blocks(descriptors_of(group)):
        client.raw_insert("series", None, lines, fmt="JSONEachRow")


def _blocks(
    group: Sequence[Rows], tabulate: Callable[[Sequence[Rows]], Table], decimals: Decimals
) -> Iterator[Sequence[Column]]:
    """Blocks of bounded length that touch a bounded number of days, each sample's rows in order."""
    for part in chain.from_iterable(portions(day, _MOST_ROWS) for day in by_days(group, _ROWS, _DAYS)):
        table = tabulate(part)
        for first in range(0, len(table), _ROWS):
            some = table.take(slice(first, first + _ROWS))
            split = decimals.split(some.series, some.value)
            yield list(zip(_COLUMNS, [some.job, some.series, some.time, *split, *some.days], strict=True))
