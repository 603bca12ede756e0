"""Sends samples to the engine as columns, in bounded blocks, and defines the log that makes them durable."""

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain

from clickhouse_connect.driver.client import Client

from jobmeter.kernel.decimals import Decimals
from jobmeter.model.batch import Uint64s
from jobmeter.store.clickhouse.descriptors import encode_blocks
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.native import Column, encode, encode_parts
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rows import (
    DAYS,
    InsertBlock,
    SampleRuns,
    join_runs,
    list_descriptors,
    split_by_days,
    split_rows,
)
from jobmeter.store.clickhouse.sort_dedupe import sort_dedupe
from jobmeter.store.clickhouse.write_fence import WriteFence

_ROWS = 1 << 20
_MOST_ROWS = 1 << 22
"""Most rows that are sorted together, about."""
_DAYS = 90
_SORTED: dict[str, int | str] = {"optimize_on_insert": 0}
_COLUMNS = ["job", "series", "time", "value", "number", "digits", *DAYS]
_TYPES = ["UInt64", "UInt64", "Int64", "Float64", "Int64", "UInt8", *("UInt16" for _ in DAYS)]
Body = bytes | Generator[bytes]


class CommitLog:
    """Makes samples durable. Safe for any number of threads.

    The last five methods do nothing by default, for a log that inserts every row at once.
    """

    def append(self, group: Sequence[SampleRuns]) -> None:
        """Return when all of the rows, in this order, and their descriptors are on disk.

        Raises if they may not be. A single sync serves the whole group: the caller gathers the requests that share it
        (``jobmeter.ingest.commit``).
        """
        raise NotImplementedError

    def get_pending(self) -> Pending:
        """Return the durable rows that may not be in the engine yet. Read them before the engine."""
        raise NotImplementedError

    def flush(self, before_ms: int | None = None) -> None:
        """Return when earlier rows are in the engine: all of them, or at least those before a time.

        Raises UnavailableError if the engine does not accept them.
        """

    def begin(self, ids: Uint64s) -> None:
        """Begin statistics of series without samples, before their first samples are appended.

        By default there are no statistics: other processes may write to the same series.
        """

    def forget(self) -> None:
        """Drop the statistics of all series."""

    def read_statistics(self) -> dict[str, int]:
        """Return the sizes for ``StoreStatistics.journal``; by default there is no journal."""
        return {}

    def close(self) -> None:
        """Finish running work. A no-op the second time."""


class DirectInserts(CommitLog):
    """A ``CommitLog`` that inserts each group: for an engine whose disk is on another machine."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._decimals = Decimals()

    def append(self, group: Sequence[SampleRuns]) -> None:
        """Insert the rows; on return the engine has them."""
        with translate_failures("keep samples"), self._pool.borrow_client() as client:
            _describe(client, group)
            for block in _blocks(group, join_runs, self._decimals):
                client.raw_insert("samples", _COLUMNS, encode(block), fmt="Native")

    def get_pending(self) -> Pending:
        """Return an empty ``Pending``: every row is inserted at once."""
        return NOTHING


class Flusher:
    """Inserts the rows of a journal into the engine, sorted and deduplicated, so that the engine need not."""

    def __init__(self, pool: Pool, body: Callable[[Sequence[Column]], Body] = encode_parts) -> None:
        """``body`` encodes a block: in pieces, or as a whole that an HTTP client can send again."""
        self._pool = pool
        self._body = body
        self._decimals = Decimals()

    def __call__(self, group: Sequence[SampleRuns], fence: WriteFence | None = None) -> None:
        """Insert the rows, unless a ``fence`` refuses them. They are durable on return."""
        with translate_failures("keep samples"), self._pool.borrow_client() as client:
            _describe(client, group)
            for block in _blocks(group, sort_dedupe, self._decimals):
                if fence is None:
                    client.raw_insert("samples", _COLUMNS, self._body(block), fmt="Native", settings=_SORTED)
                else:
                    target = fence.find_target("samples", dict(zip(_COLUMNS, _TYPES, strict=True)))
                    client.raw_insert(target, None, self._body(block), fmt="Native", settings=_SORTED | fence.settings)


def _describe(client: Client, group: Sequence[SampleRuns]) -> None:
    """Insert the descriptors of some rows before the rows, which cannot be found without them."""
    for lines in encode_blocks(list_descriptors(group)):
        client.raw_insert("series", None, lines, fmt="JSONEachRow")


def _blocks(
    group: Sequence[SampleRuns], tabulate: Callable[[Sequence[SampleRuns]], InsertBlock], decimals: Decimals
) -> Iterator[Sequence[Column]]:
    """Yield blocks of bounded length and a bounded number of days, the rows of each sample in order."""
    for part in chain.from_iterable(split_rows(day, _MOST_ROWS) for day in split_by_days(group, _ROWS, _DAYS)):
        table = tabulate(part)
        for first in range(0, len(table), _ROWS):
            some = table.take(slice(first, first + _ROWS))
            split = decimals.split(some.series, some.value)
            yield list(zip(_COLUMNS, [some.job, some.series, some.time, *split, *some.days], strict=True))
