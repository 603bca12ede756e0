"""Roll-ups: computed from the samples and replaced, never incremented."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client

from jobmeter.errors import JobmeterError
from jobmeter.model.catalog import METRICS, Kind
from jobmeter.model.time import DAY, HOUR, TimeRange, ceil_to, floor_to
from jobmeter.store.clickhouse import rollup_sql
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rollup_state import DirtyHour, RollupState
from jobmeter.store.clickhouse.rows import JobHour
from jobmeter.store.clickhouse.sql import pieces

_ROWS = 2_000_000
"""Samples that one statement works on at most, about; it takes some 130 bytes of memory for each."""

_JOBS = 2_000
_COUNTERS = sorted(metric.name for metric in METRICS if metric.kind is Kind.COUNTER)
_SPAN = 31 * DAY
"""Longest stretch of hours that one statement computes: it touches two monthly partitions of the minutes at most."""


class _Work(msgspec.Struct, frozen=True):
    """Hours to compute, of some jobs (None: of all)."""

    start: int
    end: int
    jobs: tuple[int, ...] | None


class Roller:
    """See ``Store.roll_up`` and ``Store.rolled``. One roll-up runs at a time; readers and writers continue.

    ``flush`` brings what was stored before, and is older than a time, into the engine. It comes after the marks are
    taken or ``intent`` is raised, and before the samples are read. So whatever a writer stored before is among
    them; and a writer that stored its samples later reads the roll-up state once more after that, and marks them
    again.
    """

    def __init__(self, pool: Pool, ledger: RollupState, flush: Callable[[int], None]) -> None:
        self._flush = flush
        self._pool = pool
        self._ledger = ledger
        self._running = threading.Lock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No roll-up runs inside the block."""
        with self._running:
            yield

    def roll_up(self, until_ms: int) -> int:
        """Marked hours first, earliest first: what follows looks back at what they end with."""
        with self._running:
            marked = self._roll_marked()
            return marked + self._roll_new(floor_to(until_ms, HOUR))

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """Whole hours before ``done`` without the marked ones, and without those whose reference a mark may change."""
        end = min(floor_to(span.end_ms, HOUR), self._ledger.done())
        start = ceil_to(span.start_ms, HOUR)
        if start >= end:
            return []
        # A mark changes its own hour and later ones.
        marked = {pair for pair in self._ledger.marked(jobs) if pair[1] < end}
        works = _grouped(marked)
        # Between two marked hours, too, a counter may have a new reference.
        holes = {hour for work in works for hour in range(work.start, work.end, HOUR)}
        if holes.issuperset(range(start, end, HOUR)):
            # As after an import: nothing is left whose reference could change, so the engine need not search for it.
            return []
        if marked and not self._flushed(marked):
            # Which hours follow those that are marked is open now.
            earliest = min(hour for _, hour in marked)
            end = max(start, min(end, earliest))
        for work in works:
            holes.update(hour for _, hour in self._following(work))
        edges = [start, *sorted(hour for hour in holes if start <= hour < end), end]
        parts: list[TimeRange] = []
        at = start
        for hole in edges[1:]:
            if at < hole:
                parts.append(TimeRange(at, hole))
            at = hole + HOUR
        return parts

    def _flushed(self, pairs: Iterable[JobHour]) -> bool:
        """Bring the samples of some hours into the engine, if it takes them."""
        try:
            self._flush(max(hour for _, hour in pairs) + HOUR)
        except JobmeterError:
            return False
        return True

    def _roll_marked(self) -> int:
        marks = self._ledger.take()
        try:
            return self._roll(marks)
        except BaseException:
            self._ledger.give_back(marks)
            raise

    def _roll(self, marks: Sequence[DirtyHour]) -> int:
        pairs = {(mark.job, mark.hour) for mark in marks}
        if pairs:
            self._flush(max(hour for _, hour in pairs) + HOUR)
        following: set[JobHour] = set()
        for work in _grouped(pairs):
            self._compute(work)
            following.update(self._following(work))
        for work in _grouped(following - pairs):
            self._compute(work)
        self._ledger.clear(marks)
        return len({hour for _, hour in pairs})

    def _roll_new(self, until_ms: int) -> int:
        start = self._ledger.done()
        if until_ms <= start:
            return 0
        # From here on writers mark what they add to these hours; what they added before is visible now.
        self._ledger.raise_intent(until_ms)
        self._flush(until_ms)
        with translated("roll up"), self._pool.client() as client:
            parameters = {"start": start, "end": until_ms}
            rows = client.query(rollup_sql.HOURS_WITH_DATA, parameters=parameters).result_rows
        hours = [int(row[0]) for row in rows]
        for first, last in _stretches(hours):
            self._compute(_Work(first, last, None))
        self._ledger.raise_done(until_ms)
        return len(hours)

    def _compute(self, work: _Work) -> None:
        """Batches of hours with a bounded number of samples; a fuller hour is split by series."""
        for parameters, scope in _scopes(work):
            with translated("roll up"), self._pool.client() as client:
                sql = rollup_sql.scoped(rollup_sql.COUNTS, scope)
                counts = [
                    (int(hour), int(count)) for hour, count in client.query(sql, parameters=parameters).result_rows
                ]
                for start, end, shares in _portions(counts):
                    portion = parameters | {"start": start, "end": end}
                    sql = rollup_sql.scoped(rollup_sql.ROLLED_BEFORE, scope)
                    again = bool(client.query(sql, parameters=portion).result_rows)
                    for share in range(shares):
                        _replace(client, portion, scope, (share, shares), again=again)

    def _following(self, work: _Work) -> set[JobHour]:
        found: set[JobHour] = set()
        for parameters, scope in _scopes(work):
            with translated("roll up"), self._pool.client() as client:
                sql = rollup_sql.scoped(rollup_sql.FOLLOWING, scope)
                rows = client.query(sql, parameters=parameters).result_rows
            found.update((int(job), int(hour)) for job, hour in rows)
        return found


def _replace(client: Client, parameters: dict[str, Any], scope: str, share: tuple[int, int], *, again: bool) -> None:
    """Compute minutes from samples, then hours from these minutes."""
    number, shares = share
    if shares > 1:
        parameters = parameters | {"shares": shares, "share": number}
        scope = f"{scope} AND {rollup_sql.SCOPE_SHARE}"
    for statement in (rollup_sql.minutes, rollup_sql.hours):
        client.command(statement(scope, again=again), parameters=parameters)


def _portions(counts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Hours with their samples as (start, end, shares): about ``_ROWS`` samples in each share."""
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
    for part in pieces(work.jobs, _JOBS):
        yield parameters | {"jobs": list(part)}, rollup_sql.SCOPE_JOBS


def _stretches(hours: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Hours as ranges: those less than a day apart are joined, up to ``_SPAN``."""
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


def _grouped(pairs: Iterable[JobHour]) -> list[_Work]:
    """Marked hours as work, earliest first: the jobs whose hours make the same stretch go together."""
    hours: dict[int, list[int]] = {}
    for job, hour in pairs:
        hours.setdefault(job, []).append(hour)
    jobs: dict[tuple[int, int], list[int]] = {}
    for job, members in hours.items():
        for stretch in _stretches(members):
            jobs.setdefault(stretch, []).append(job)
    return [_Work(start, end, tuple(sorted(members))) for (start, end), members in sorted(jobs.items())]
