"""Roll-ups: computed from the samples and replaced, never incremented."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jobmeter.model.catalog import METRICS, Kind
from jobmeter.model.time import DAY, HOUR, TimeRange, ceil_to, floor_to
from jobmeter.store.clickhouse import rollup_sql
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.ledger import JobHour, Ledger
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.sql import pieces

_ROWS = 4_000_000
"""Samples that one statement works on at most, about; it takes some 100 bytes of memory for each."""

_JOBS = 2_000
_COUNTERS = sorted(metric.name for metric in METRICS if metric.kind is Kind.COUNTER)
_SETTINGS = {
    "max_bytes_before_external_sort": 1 << 30,
    "max_bytes_before_external_group_by": 1 << 30,
    "max_execution_time": 3600,
}


@dataclass(frozen=True, slots=True)
class _Work:
    """Hours to compute, of some jobs (None: of all)."""

    start: int
    end: int
    jobs: tuple[int, ...] | None
    again: bool


class Roller:
    """See ``Store.roll_up`` and ``Store.rolled``. One roll-up runs at a time; readers and writers go on."""

    def __init__(self, pool: Pool, ledger: Ledger) -> None:
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
        marked = self._ledger.marked(jobs)
        holes = {hour for _, hour in marked}
        for work in _grouped(marked):
            holes.update(hour for _, hour in self._following(work))
        edges = [start, *sorted(hour for hour in holes if start <= hour < end), end]
        parts: list[TimeRange] = []
        at = start
        for hole in edges[1:]:
            if at < hole:
                parts.append(TimeRange(at, hole))
            at = hole + HOUR
        return parts

    def _roll_marked(self) -> int:
        marks = self._ledger.take()
        pairs = {(mark.job, mark.hour) for mark in marks}
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
        with translated("roll up"), self._pool.client() as client:
            parameters = {"start": start, "end": until_ms}
            rows = client.query(rollup_sql.HOURS_WITH_DATA, parameters=parameters).result_rows
        hours = [int(row[0]) for row in rows]
        for first, last in _windows(hours):
            self._compute(_Work(first, last, None, again=False))
        self._ledger.raise_done(until_ms)
        return len(hours)

    def _compute(self, work: _Work) -> None:
        for parameters, scope in _scopes(work):
            with translated("roll up"), self._pool.client() as client:
                count = client.query(rollup_sql.scoped(rollup_sql.COUNT, scope), parameters=parameters).result_rows
                shares = -(-int(count[0][0]) // _ROWS)
                for share in range(shares):
                    values, narrowed = parameters, scope
                    if shares > 1:
                        values = parameters | {"shares": shares, "share": share}
                        narrowed = f"{scope} AND {rollup_sql.SCOPE_SHARE}"
                    for statement in (rollup_sql.minutes, rollup_sql.hours):
                        client.command(statement(narrowed, again=work.again), parameters=values, settings=_SETTINGS)

    def _following(self, work: _Work) -> set[JobHour]:
        found: set[JobHour] = set()
        for parameters, scope in _scopes(work):
            with translated("roll up"), self._pool.client() as client:
                sql = rollup_sql.scoped(rollup_sql.FOLLOWING, scope)
                rows = client.query(sql, parameters=parameters).result_rows
            found.update((int(job), int(hour)) for job, hour in rows)
        return found


def _scopes(work: _Work) -> Iterator[tuple[dict[str, Any], str]]:
    parameters: dict[str, Any] = {"start": work.start, "end": work.end, "counters": _COUNTERS}
    if work.jobs is None:
        yield parameters, "1"
        return
    for part in pieces(work.jobs, _JOBS):
        yield parameters | {"jobs": list(part)}, rollup_sql.SCOPE_JOBS


def _windows(hours: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Hours, ascending, joined within each day (and its partition)."""
    days: dict[int, list[int]] = {}
    for hour in hours:
        days.setdefault(hour // DAY, []).append(hour)
    for _, members in sorted(days.items()):
        yield members[0], members[-1] + HOUR


def _grouped(pairs: Iterable[JobHour]) -> list[_Work]:
    """Marked hours as work, ascending: for each day the jobs whose hours of that day span the same range."""
    spans: dict[tuple[int, int], list[int]] = {}
    for job, hour in pairs:
        spans.setdefault((job, hour // DAY), []).append(hour)
    jobs: dict[tuple[int, int], list[int]] = {}
    for (job, _), hours in spans.items():
        jobs.setdefault((min(hours), max(hours) + HOUR), []).append(job)
    return [_Work(start, end, tuple(sorted(members)), again=True) for (start, end), members in sorted(jobs.items())]
