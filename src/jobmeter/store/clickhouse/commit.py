"""Samples to the engine: columns, split where it needs it, and commits shared by those who wait."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from jobmeter.errors import UnavailableError
from jobmeter.kernel.decimals import Decimals
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.native import Column, encode, parts
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rows import DAYS, Rows, Table, day_parts, joined
from jobmeter.store.clickhouse.settled import settled

_ROWS = 1 << 20
_DAYS = 90
_ALONE = 100_000
_SORTED = {"optimize_on_insert": 0}
_COLUMNS = ["job", "series", "time", "value", "number", "digits", *DAYS]


class Keeper(Protocol):
    """What keeps samples. Safe for any number of threads."""

    def commit(self, *group: Rows) -> None:
        """Return when all of the rows, which count in this order, are on disk; raise when they may not be."""
        ...

    def pending(self) -> Pending:
        """What is kept and may not be in the engine yet. To be asked before the engine is."""
        ...

    def settle(self, before_ms: int | None = None) -> None:
        """Return when what was committed before is in the engine: all of it, or at least what is older than a time.

        Raises UnavailableError where the engine does not take it.
        """
        ...

    def statistics(self) -> dict[str, int]:
        """See ``StoreStatistics.journal``."""
        ...

    def close(self) -> None:
        """Finish what is under way. A no-op the second time."""
        ...


class _Ticket:
    """One caller's rows on their way."""

    def __init__(self, group: Sequence[Rows]) -> None:
        self.group = group
        self.turn = threading.Event()
        self.done = False
        self.error: Exception | None = None


class Shared:
    """While one call of ``keep`` is on its way, those who come wait, and the next call carries them all."""

    def __init__(self, keep: Callable[[list[Rows]], None]) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._busy = False

    def commit(self, *group: Rows) -> None:
        """Return when the rows are kept; raise what ``keep`` raised."""
        ticket = _Ticket(group)
        with self._lock:
            self._waiting.append(ticket)
            if self._busy:
                leading = False
            else:
                leading = self._busy = True
        if not leading:
            ticket.turn.wait()
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error

    def _lead(self) -> None:
        with self._lock:
            group, self._waiting = self._waiting, []
        error: Exception | None = UnavailableError("keeping the samples was interrupted")
        try:
            self._keep([rows for ticket in group for rows in ticket.group])
            error = None
        except Exception as caught:  # noqa: BLE001 - every waiter raises it for itself
            error = caught
        finally:
            with self._lock:
                following = self._waiting[0] if self._waiting else None
                self._busy = following is not None
            for ticket in group:
                ticket.error = error
                ticket.done = True
                ticket.turn.set()
            if following is not None:
                following.turn.set()


class Committer:
    """A ``Keeper`` that inserts at once: for an engine whose disk is another machine's.

    Small inserts are shared, so that a disk that takes 100 syncs a second still takes thousands of batches. Large
    batches go alone, beside them.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._shared = Shared(self._insert)
        self._decimals = Decimals()

    def commit(self, *group: Rows) -> None:
        """See ``Keeper.commit``."""
        if sum(map(len, group)) >= _ALONE:
            self._insert(group)
        else:
            self._shared.commit(*group)

    def pending(self) -> Pending:
        """See ``Keeper.pending``: nothing ever is."""
        return NOTHING

    def settle(self, before_ms: int | None = None) -> None:
        """See ``Keeper.settle``: it is so already."""

    def statistics(self) -> dict[str, int]:
        """See ``Keeper.statistics``."""
        return {}

    def close(self) -> None:
        """See ``Keeper.close``."""

    def _insert(self, group: Sequence[Rows]) -> None:
        table = joined(group)
        with translated("keep samples"), self._pool.client() as client:
            for block in _blocks(table, self._decimals):
                client.raw_insert("samples", _COLUMNS, encode(block), fmt="Native")


class Flusher:
    """Puts what waited in a journal into the embedded engine, sorted and each sample once, so that it need not."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._decimals = Decimals()

    def __call__(self, group: list[Rows]) -> None:
        """Durable on return."""
        table = settled(group)
        with translated("keep samples"), self._pool.client() as client:
            for block in _blocks(table, self._decimals):
                client.raw_insert("samples", _COLUMNS, parts(block), fmt="Native", settings=_SORTED)


def _blocks(table: Table, decimals: Decimals) -> Iterator[Sequence[Column]]:
    """Blocks of bounded length that touch a bounded number of days, each sample's rows in order."""
    for chosen in day_parts(table.time, _ROWS, _DAYS):
        some = table.take(chosen)
        split = decimals.split(some.series, some.value)
        yield list(zip(_COLUMNS, [some.job, some.series, some.time, *split, *some.days], strict=True))
