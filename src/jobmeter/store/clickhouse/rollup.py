"""Computes roll-ups from the samples, and replaces them; they are never incremented."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from secrets import token_hex
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client

from jobmeter.errors import JobmeterError
from jobmeter.model.catalog import METRICS, Kind
from jobmeter.model.grouping import group_pairs
from jobmeter.model.time import DAY, HOUR, TimeRange, ceil_to, floor_to
from jobmeter.store.clickhouse import rollup_sql
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rollup_state import LateHour, RollupState
from jobmeter.store.clickhouse.rows import JobHour
from jobmeter.store.clickhouse.sql import iterate_pieces
from jobmeter.store.clickhouse.write_fence import fence_roll_up
from jobmeter.store.clickhouse.write_gate import WriteGate

_ROWS = 2_000_000
"""Most samples of one statement, about; each takes some 130 bytes of memory."""

_JOBS = 2_000
_COUNTERS = sorted(metric.name for metric in METRICS if metric.kind is Kind.COUNTER)
_SPAN = 31 * DAY
"""Longest range of hours of one statement: it touches at most two monthly partitions of the minutes."""


class _Work(msgspec.Struct, frozen=True):
    """Hours to compute, of some jobs (None: of all)."""

    start: int
    end: int
    jobs: tuple[int, ...] | None


class RollupJob:
    """Computes roll-ups. A single roll-up runs at a time; reads and writes continue.

    ``flush`` brings earlier rows before a time into the engine. It is called after the marks are taken or ``intent`` is
    raised, and before the samples are read. So the samples include every earlier write. A writer that stores its
    samples later reads the roll-up state again after that, and marks them again.
    """

    def __init__(self, pool: Pool, state: RollupState, flush: Callable[[int], None], gate: WriteGate) -> None:
        self._gate = gate
        self._flush = flush
        self._pool = pool
        self._state = state
        self._running = threading.Lock()
        self._fence = fence_roll_up(token_hex(8))

    def pause(self) -> AbstractContextManager[bool]:
        """Prevent roll-ups inside the block."""
        return self._running

    def roll_up(self, until_ms: int) -> int:
        """Compute marked hours, earliest first because later hours refer back to them, then new hours."""
        with self._running, self._gate.admit_write():
            marked = self._roll_marked()
            return marked + self._roll_new(floor_to(until_ms, HOUR))

    def find_rolled_up_ranges(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """Return whole hours before ``done``, without marked ones and those whose reference a mark may change."""
        end = min(floor_to(span.end_ms, HOUR), self._state.read_done())
        start = ceil_to(span.start_ms, HOUR)
        if start >= end:
            return []
        # A mark changes its own hour and later ones.
        marked = {pair for pair in self._state.find_marked(jobs) if pair[1] < end}
        works = _group_hours(marked)
        # A counter may also have a new reference between two marked hours.
        holes = {hour for work in works for hour in range(work.start, work.end, HOUR)}
        if holes.issuperset(range(start, end, HOUR)):
            # As after an import: no hour has a reference that could change, so the engine need not search for it.
            return []
        if marked and not self._flushed(marked):
            # The hours that follow the marked ones are unknown at this point.
            earliest = min(hour for _, hour in marked)
            end = max(start, min(end, earliest))
        for work in works:
            holes.update(hour for _, hour in self._find_following(work))
        edges = [start, *sorted(hour for hour in holes if start <= hour < end), end]
        parts: list[TimeRange] = []
        at = start
        for hole in edges[1:]:
            if at < hole:
                parts.append(TimeRange(at, hole))
            at = hole + HOUR
        return parts

    def _flushed(self, pairs: Iterable[JobHour]) -> bool:
        """Bring the samples of some hours into the engine. Return False if it does not accept them."""
        try:
            self._flush(max(hour for _, hour in pairs) + HOUR)
        except JobmeterError:
            return False
        return True

    def _roll_marked(self) -> int:
        marks = self._state.take()
        try:
            return self._roll(marks)
        except BaseException:
            self._state.give_back(marks)
            raise

    def _roll(self, marks: Sequence[LateHour]) -> int:
        pairs = {(mark.job, mark.hour) for mark in marks}
        if pairs:
            self._flush(max(hour for _, hour in pairs) + HOUR)
        following: set[JobHour] = set()
        for work in _group_hours(pairs):
            self._compute(work)
            following.update(self._find_following(work))
        for work in _group_hours(following - pairs):
            self._compute(work)
        self._state.clear(marks)
        return len({hour for _, hour in pairs})

    def _roll_new(self, until_ms: int) -> int:
        start = self._state.read_done()
        if until_ms <= start:
            return 0
        # From here on writers mark their new samples of these hours; earlier samples are visible now.
        self._state.raise_intent(until_ms)
        self._flush(until_ms)
        with translate_failures("roll up"), self._pool.borrow_client() as client:
            parameters = {"start": start, "end": until_ms}
            rows = client.query(rollup_sql.HOURS_WITH_DATA, parameters=parameters).result_rows
        hours = [int(row[0]) for row in rows]
        for first, last in _stretches(hours):
            self._compute(_Work(first, last, None))
        self._state.raise_done(until_ms)
        return len(hours)

    def _compute(self, work: _Work) -> None:
        """Compute hours in batches with a bounded number of samples; a larger hour is split by series."""
        for parameters, scope in _scopes(work):
            with translate_failures("roll up"), self._pool.borrow_client() as client:
                sql = rollup_sql.restrict(rollup_sql.COUNTS, scope)
                counts = [
                    (int(hour), int(count)) for hour, count in client.query(sql, parameters=parameters).result_rows
                ]
                for start, end, shares in _portions(counts):
                    portion = parameters | {"start": start, "end": end}
                    sql = rollup_sql.restrict(rollup_sql.ROLLED_BEFORE, scope)
                    again = bool(client.query(sql, parameters=portion).result_rows)
                    part = scope if shares == 1 else f"{scope} AND {rollup_sql.SCOPE_SHARE}"
                    for share in range(shares):
                        self._replace(client, portion | {"shares": shares, "share": share}, part, again=again)

    def _find_following(self, work: _Work) -> set[JobHour]:
        found: set[JobHour] = set()
        for parameters, scope in _scopes(work):
            with translate_failures("roll up"), self._pool.borrow_client() as client:
                sql = rollup_sql.restrict(rollup_sql.FOLLOWING, scope)
                rows = client.query(sql, parameters=parameters).result_rows
            found.update((int(job), int(hour)) for job, hour in rows)
        return found

    def _replace(self, client: Client, parameters: dict[str, Any], scope: str, *, again: bool) -> None:
        """Compute minutes from samples, then hours from these minutes."""
        for statement in (rollup_sql.make_minutes_statement, rollup_sql.make_hours_statement):
            sql = self._state.restrict(self._fence.restrict(statement(scope, again=again)))
            try:
                client.command(sql, parameters=parameters, settings=rollup_sql.LIMITS | self._fence.settings)
            except BaseException:
                self._fence = fence_roll_up(token_hex(8))  # the engine may still run the statement
                raise


def _portions(counts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of hours as (start, end, shares), with about ``_ROWS`` samples in each share."""
    start, end, total = -1, -1, 0
    for hour, count in counts:
        if total and total + count > _ROWS:
            yield start, end, -(-total // _ROWS)
            total = 0
        if not total:
            start = hour
        end, total = hour + HOUR, total + count
    if total:
        yield start, end, -(-total // _ROWS)


def _scopes(work: _Work) -> Iterator[tuple[dict[str, Any], str]]:
    parameters: dict[str, Any] = {"start": work.start, "end": work.end, "counters": _COUNTERS}
    if work.jobs is None:
        yield parameters, "1"
        return
    for part in iterate_pieces(work.jobs, _JOBS):
        yield parameters | {"jobs": list(part)}, rollup_sql.SCOPE_JOBS


def _stretches(hours: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield hours as ranges: hours less than a day apart are joined, up to ``_SPAN``."""
    first = last = -1
    for hour in sorted(hours):
        if first >= 0 and hour - last < DAY and hour - first < _SPAN:
            last = hour
            continue
        if first >= 0:
            yield first, last + HOUR
        first = last = hour
    if first >= 0:
        yield first, last + HOUR


def _group_hours(pairs: Iterable[JobHour]) -> list[_Work]:
    """Group marked hours into work, earliest first: jobs with the same range of hours go together."""
    hours = group_pairs(pairs)
    jobs = group_pairs((stretch, job) for job, members in hours.items() for stretch in _stretches(members))
    return [_Work(start, end, tuple(sorted(members))) for (start, end), members in sorted(jobs.items())]
