"""Makes the tables of one engine equal to another engine's, slice by slice, beside traffic.

A pass compares counts and checksums of both engines, and copies the slices that differ. So a copy needs no record of
its progress: after a kill at any moment the next pass copies the rest. A slice may be copied again, because a row
replaces an equal row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobmeter.errors import UnavailableError
from jobmeter.model.move import MoveStep
from jobmeter.model.time import HOUR, SECOND, Clock
from jobmeter.store.clickhouse.moved_tables import TABLES, EngineTables, SliceSum, TableSlices

SHORT_SECONDS = 5.0
"""Passes beside traffic end once a pass took less than this, or once further passes are hardly shorter."""
_SHORTER = 0.7
_MOST_CHECKS = 5
"""Passes without writes until the engines must agree."""
_WORD = 1 << 64
NO_ROWS = SliceSum(0, 0)
_State = tuple[int, int]
Difference = tuple[int, SliceSum, SliceSum]


class _EqualPartition(NamedTuple):
    """State of a partition at which both engines had the same rows, and their sum."""

    state: _State
    total: SliceSum


class SliceCopy:
    """Copy of one engine's rows to another engine, to which nobody else writes."""

    def __init__(
        self,
        source: EngineTables,
        destination: EngineTables,
        clock: Clock,
        flush: Callable[[], None],
        tables: Sequence[TableSlices] = TABLES,
    ) -> None:
        """``flush`` is called before each pass: it brings all durable rows into the first engine."""
        self.source = source
        self._destination = destination
        self._clock = clock
        self._flush = flush
        self.tables = tables
        self._equal: dict[tuple[str, str], _EqualPartition] = {}
        self.copied = 0
        """Number of rows copied."""
        self.is_quiet = False
        """True while nobody writes to the first engine."""

    def passes(self) -> Iterator[MoveStep]:
        """Copy until little is left: what is written during a pass is the work of the next one."""
        before = float("inf")
        while True:
            began = self._clock.monotonic()
            yield from self._pass(again=False)
            took = self._clock.monotonic() - began
            if took < SHORT_SECONDS or took > before * _SHORTER:
                return
            before = took

    def copy_until_equal(self) -> Iterator[MoveStep]:
        """Copy and compare until both engines agree. Nobody writes meanwhile."""
        for number in range(_MOST_CHECKS):
            differed = False
            for step in self._pass(again=number > 0):
                differed = True
                yield step
            if not differed:
                return
        raise UnavailableError(
            "two engines still differ after every difference was copied: try again, and check the disks of both if it "
            "fails again"
        )

    def _pass(self, *, again: bool) -> Iterator[MoveStep]:
        """Copy the slices that differ.

        ``again``: an earlier copy did not make them equal, so the destination has rows that the first engine lacks.
        """
        self._flush()
        for table in self.tables:
            changed = self.find_changed(table)
            pairs, _ = self.compare(table, changed)
            surplus = [one for one, here, there in pairs if there.rows and (again or there.rows > here.rows)]
            if surplus:
                self._destination.erase(table, surplus)
            for done, (number, here, _) in enumerate(pairs):
                yield MoveStep(table=table.table, done=done, total=len(pairs), rows=self.copied, refusing=self.is_quiet)
                if here.rows:
                    self.source.copy(table, number, self._clock.now_ms() // SECOND, self._destination)
                    self.copied += here.rows

    def find_changed(self, table: TableSlices) -> dict[str, _State]:
        """Return the partitions that may differ, with their states in the first engine."""
        here = self.source.list_partitions(table)
        extra: dict[str, _State] = {
            name: (-1, -1) for name in self._destination.list_partitions(table) if name not in here
        }
        found = {**here, **extra}
        return {name: state for name, state in found.items() if self._state_of(table, name) != state}

    def _state_of(self, table: TableSlices, partition: str) -> _State | None:
        equal = self._equal.get((table.table, partition))
        return None if equal is None else equal.state

    def compare(self, table: TableSlices, changed: Mapping[str, _State]) -> tuple[list[Difference], SliceSum]:
        """Compare partitions. Return their slices that differ, and the sum of their rows in the first engine.

        Notes the partitions that agree.
        """
        if not changed:
            return [], NO_ROWS
        # A row that expires during the comparison must not count in one engine only.
        at_seconds = (self._clock.now_ms() + HOUR) // SECOND
        source, destination = (
            one.sum_slices(table, list(changed), at_seconds) for one in (self.source, self._destination)
        )
        differing: list[Difference] = []
        for name, state in changed.items():
            here, there = source[name], destination[name]
            numbers = sorted(number for number in here.keys() | there.keys() if here.get(number) != there.get(number))
            differing += [(number, here.get(number, NO_ROWS), there.get(number, NO_ROWS)) for number in numbers]
            if not numbers:
                self._equal[table.table, name] = _EqualPartition(state, add_up(here.values()))
        return differing, add_up(one for sums in source.values() for one in sums.values())

    def find_agreed_sum(self, table: TableSlices) -> SliceSum:
        """Return the sum of the rows of a table on which both engines agreed."""
        return add_up(equal.total for (name, _), equal in self._equal.items() if name == table.table)


def add_up(sums: Iterable[SliceSum]) -> SliceSum:
    """Return the sum of disjoint rows."""
    rows = checksum = 0
    for one in sums:
        rows, checksum = rows + one.rows, (checksum + one.checksum) % _WORD
    return SliceSum(rows, checksum)
