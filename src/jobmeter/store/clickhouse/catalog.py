"""The series in the engine: writes the descriptor of each with its first sample, and finds series again."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from jobmeter.errors import JobmeterError, LimitExceededError
from jobmeter.model.batch import Bools, Int64s, SampleBatch, SeriesKeys, Uint64s, find_runs, mark_last_rows
from jobmeter.model.retention import Retention
from jobmeter.model.series import SPECIAL, NamePart, Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import DAY, Clock
from jobmeter.store.base import SeriesPage, SeriesPlace, SeriesSelector, list_names
from jobmeter.store.clickhouse.descriptors import Descriptors, make_series, select
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.new_jobs import NewJobs
from jobmeter.store.clickhouse.pending import Pending
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.sql import PARAMETERS, iterate_pieces

NAMELESS = "nameless"
"""Row of ``progress`` with the time before which there may be samples of series without a descriptor."""
_MOST_CACHED = 1_000_000
_FRESH_SECONDS = 300.0
_COLUMNS = ("metric", "project", "cluster", "node", "device", "job_id", "replica", "attempt", "labels")
_NODES = 500
_NAMES = 300
_UNLISTED = (-1, -1)
_LIVE = (
    "SELECT DISTINCT job, series FROM series WHERE {shown} AND last_day = {{day:UInt32}} "
    "AND (job, series) >= ({{job:UInt64}}, {{series:UInt64}}) ORDER BY job, series LIMIT {{most:UInt64}}"
)
_DAY_BEFORE = (
    "SELECT max(last_day), count() FROM series "
    "WHERE {shown} AND last_day < {{day:UInt32}} AND last_day >= {{since:UInt32}}"
)
_PARTS = {
    NamePart.JOB: "job_id",
    NamePart.LABEL: "arrayJoin(mapKeys(labels))",
    NamePart.LABEL_VALUE: "arrayJoin(mapValues(labels))",
}


class Catalog:
    """The series in the engine. Safe for any number of threads.

    A column of the table of series has the day of each durable descriptor. So further samples of a series write no
    second descriptor, except on each new day. The column is emptied every five minutes if other servers may delete
    series.
    """

    def __init__(self, read: Pool, clock: Clock, pending: Callable[[], Pending], is_alone: Callable[[], bool]) -> None:
        """``is_alone`` returns True while no other process writes to the engine."""
        self._read = read
        self._pending = pending
        self._clock = clock
        self._is_alone = is_alone
        self.shown = "1"
        """SQL condition for the series that questions find."""
        self._lock = threading.Lock()
        self._table = SeriesTable()
        # By row: 0 without a descriptor, 1 for one that is about to be written or of an unknown day, else the day of
        # the descriptor and 2.
        self._days = self._table.add_column(np.int32)
        self._generation = 0
        self._new_jobs: NewJobs | None = None
        self._complete_for: int | None = None
        """Generation of the table that had every series with a descriptor; None if they are not read yet."""
        self._clear()
        self._countless = False
        self._nameless_until_ms = 0

    def use_series(self, table: SeriesTable) -> None:
        """Move the days of descriptors to another table."""
        with self._lock, table.lock:
            before, days = self._table, self._days
            rows = np.flatnonzero(days[: before.end])
            self._table, self._days = table, table.add_column(np.int32)
            self._days[table.assign_rows(before.ids[rows])] = days[rows]
            self._complete_for = table.generation if self._complete_for == before.generation else None

    def lacks_descriptor(self, keys: SeriesKeys, since_ms: int = 0) -> Bools:
        """Return bool[k]: series that certainly have no samples since a time, because they have no descriptor.

        A descriptor is written with the first sample. Damage can separate the two; ``note_nameless`` then notes a time,
        up to which no series is certain. The first call reads all series. If another process also writes, or for more
        than ``_MOST_CACHED`` series, no series is certain.
        """
        with self._lock:
            is_certain = self._has_all() and since_ms >= self._nameless_until_ms
            new = np.zeros(len(keys), np.bool_)
            with self._table.lock:
                if is_certain and self._complete_for == self._table.generation:
                    rows = self._table.find(keys.series)
                    new = (rows < 0) | (self._days[rows] == 0)
            return new

    def find_nameless(self, ids: Uint64s) -> Bools:
        """Return bool[k]: the series that have no descriptor in the engine."""
        found = [np.empty(0, np.uint64)]
        for some in iterate_pieces(ids.tolist()):
            with translate_failures("read series"), self._read.borrow_client() as client:
                sql = "SELECT DISTINCT series FROM series WHERE series IN {ids:Array(UInt64)}"
                columns = client.query(sql, parameters={"ids": list(some)}).result_columns
            found.append(np.array(columns[0] if columns else [], np.uint64))
        return ~np.isin(ids, np.concatenate(found))

    def note_nameless(self, until_ms: int) -> None:
        """Note durably that before a time there may be samples of series without a descriptor."""
        with translate_failures("note which samples have no names"), self._read.borrow_client() as client:
            sql = "INSERT INTO progress SELECT {name:String}, {until:Int64}"
            client.command(sql, parameters={"name": NAMELESS, "until": until_ms})
        with self._lock:
            self._nameless_until_ms = max(self._nameless_until_ms, until_ms)

    def _has_all(self) -> bool:
        """Return True if the column has every series with a descriptor. The first call reads all series."""
        if not self._is_alone() or self._countless:
            return False
        if self._complete_for is None:
            self._read_all()
        elif self._complete_for != self._table.generation:
            self._countless = True
        return not self._countless

    def _read_all(self) -> None:
        waiting = self._pending().list_descriptors()
        with translate_failures("read series"), self._read.borrow_client() as client:
            sql = "SELECT DISTINCT job, series FROM series LIMIT {most:UInt64}"
            columns = client.query(sql, parameters={"most": _MOST_CACHED + 1}).result_columns
            sql = "SELECT max(value) FROM progress WHERE name = {name:String}"
            (row,) = client.query(sql, parameters={"name": NAMELESS}).result_rows
        self._nameless_until_ms = max(self._nameless_until_ms, int(row[0]))
        jobs, stored = (np.array(column, np.uint64) for column in columns or ((), ()))
        ids = np.unique(np.concatenate([stored, *(one.ids for one in waiting)]))
        self._countless = len(ids) > _MOST_CACHED
        if not self._countless:
            with self._table.lock:
                self._add(ids)
                self._complete_for = self._table.generation
            self._new_jobs = NewJobs(np.unique(np.concatenate([jobs, *(one.job for one in waiting)])))

    def _add(self, ids: Uint64s) -> Uint64s:
        """Add series that have descriptors, or are about to. Return the new ones."""
        with self._table.lock:
            rows = self._table.assign_rows(ids)
            new = self._days[rows] == 0
            self._days[rows[new]] = 1
            added: Uint64s = ids[new]
            return added

    def find_missing(
        self, batches: Sequence[SampleBatch], retention: Retention, *, seeks_new: bool = True
    ) -> "MissingDescriptors":
        """Return the descriptors that must be written with some batches.

        With ``seeks_new``, also return the series that certainly have no samples. The first call may read all series.
        """
        keep_days = max(retention.raw_days, retention.minute_days, retention.hour_days)
        with self._lock:
            self._forget_old()
            found = [self._find_missing(batch, keep_days) for batch in batches]
            ids = [one.ids for one in found if one is not None]
            is_certain = False
            if ids and seeks_new:
                with suppress(JobmeterError):  # a write must not fail because the engine cannot be read now
                    is_certain = self._has_all() and not self._nameless_until_ms
            new = [self._add(some) for some in ids]
            is_certain = is_certain and self._has_all()  # the table may have dropped series meanwhile
            certain = np.concatenate(new) if is_certain else np.empty(0, np.uint64)
            return MissingDescriptors(found, self._generation, certain)

    def note(self, written: "MissingDescriptors") -> None:
        """Record that descriptors are durable, unless some were deleted since."""
        several = [one for one in written.descriptors if one is not None]
        if not several:
            return
        ids, days = (np.concatenate([getattr(one, name) for one in several]) for name in ("ids", "days"))
        order = np.lexsort((days, ids))
        last = order[mark_last_rows(ids[order])]
        with self._lock:
            same = self._generation == written.generation
            if self._new_jobs is not None:
                for one in several:
                    # Of these jobs, descriptors may be missing here.
                    self._new_jobs.add(one) if same else self._new_jobs.close(one.job)
            if not same:
                return
            with self._table.lock:
                self._days[self._table.assign_rows(ids[last])] = days[last] + 2

    def _find_missing(self, batch: SampleBatch, keep_days: int) -> Descriptors | None:
        """Return the descriptors of a batch that are not written yet, or not for its day."""
        keys = batch.keys
        # The same lists repeat: the cached day is that up to which all descriptors of the list are written.
        generation, day = keys.derived.get(self, _UNLISTED)
        if generation == self._generation and day >= batch.span[1] // DAY:
            return None
        days = _find_last_days(batch)
        with self._table.lock:
            missing = np.flatnonzero((days >= 0) & (self._days[self._table.assign_rows(keys.series)] < days + 2))
        if not len(missing):
            keys.derived[self] = self._generation, int(days.min())
            return None
        series = [batch.series[place] for place in missing.tolist()]
        return Descriptors.from_series(series, keys.select(missing), days[missing], keep_days)

    def forget(self) -> None:
        """Drop the cache of written descriptors, because some were deleted, or restored from a backup."""
        with self._lock:
            self._clear()

    def close_new_jobs(self) -> None:
        """Find the series of all jobs in the engine from now on."""
        with self._lock:
            if self._new_jobs is not None:
                self._new_jobs.close_all()

    def find(self, selector: SeriesSelector) -> list[Series]:
        """Return the series that match. Raises LimitExceededError past the selector's limit."""
        found = {(one.job_key, one.id): one for one in self._list_waiting(selector)}
        with self._lock:
            new = self._new_jobs.find(selector) if self._new_jobs is not None and self._is_alone() else None
        if new is not None:
            found.update(((one.job_key, one.id), one) for one in new)
        for conditions, parameters in _questions(selector) if new is None else ():
            with translate_failures("read series"), self._read.borrow_client() as client:
                rows = client.query(
                    f"SELECT job, series, {', '.join(_COLUMNS)} FROM series WHERE {conditions} AND {self.shown} "
                    "LIMIT 1 BY job, series LIMIT {most:UInt64}",
                    parameters=parameters | {"most": selector.limit + 1},
                ).result_rows
            found.update(((row[0], row[1]), make_series(row[2:])) for row in rows)
            if len(found) > selector.limit:
                break
        if len(found) > selector.limit:
            raise LimitExceededError(f"more than {selector.limit} series match: narrow the query", "metrics")
        return list(found.values())

    def list_live(self, since_ms: int, most: int, place: SeriesPlace) -> SeriesPage:
        """Return a page of series that may have samples since a time, from the engine alone."""
        day, job, series = place
        with translate_failures("read series"), self._read.borrow_client() as client:
            found = client.query(
                _LIVE.format(shown=self.shown), parameters={"day": day, "job": job, "series": series, "most": most + 1}
            )
            jobs, ids = (np.array(column, np.uint64) for column in found.result_columns or ((), ()))
            following: SeriesPlace | None
            if len(ids) > most:
                following = (day, int(jobs[most]), int(ids[most]))
            else:
                limits = {"day": day, "since": since_ms // DAY}
                (row,) = client.query(_DAY_BEFORE.format(shown=self.shown), parameters=limits).result_rows
                following = (int(row[0]), 0, 0) if row[1] else None
        return SeriesPage(SeriesKeys(jobs[:most], ids[:most]), following)

    def list_names(self, selector: SeriesSelector, part: NamePart, prefix: str = "") -> list[str]:
        """Return the distinct names of a field in the matching series, sorted."""
        found = {name for one in self._list_waiting(selector) for name in list_names(one, part)}
        found = {name for name in found if name and name.startswith(prefix)}
        column = _PARTS.get(part, part.value)
        for conditions, parameters in _questions(selector):
            with translate_failures("read names"), self._read.borrow_client() as client:
                rows = client.query(
                    f"SELECT DISTINCT toString({column}) AS name FROM series WHERE {conditions} AND {self.shown} "
                    "AND name != '' AND startsWith(name, {prefix:String}) ORDER BY name LIMIT {most:UInt64}",
                    parameters=parameters | {"most": selector.limit, "prefix": prefix},
                ).result_rows
            found.update(row[0] for row in rows)
        return sorted(found)[: selector.limit]

    def _list_waiting(self, selector: SeriesSelector) -> Iterator[Series]:
        """Yield the matching series that may not be in the engine yet.

        Read before the engine, so that none is missed.
        """
        return select(self._pending().list_descriptors(), selector)

    def _forget_old(self) -> None:
        if not self._is_alone() and self._clock.monotonic() - self._since > _FRESH_SECONDS:
            self._clear()

    def _clear(self) -> None:
        with self._table.lock:
            self._days[: self._table.end] = 0
        self._complete_for = self._new_jobs = None
        self._generation += 1
        self._since = self._clock.monotonic()


class MissingDescriptors(NamedTuple):
    """New descriptors of each batch, and the number of times that the catalog's cache was emptied before.

    ``new``: ids of the series among them that certainly have no samples.
    """

    descriptors: Sequence[Descriptors | None]
    generation: int
    new: Uint64s


def _find_last_days(batch: SampleBatch) -> Int64s:
    """Return the day (since the epoch) of each series' last sample in the batch, -1 for a series without samples."""
    starts = find_runs(batch.index)
    last = np.full(len(batch.series), -1, np.int64)
    np.maximum.at(last, batch.index[starts], np.maximum.reduceat(batch.time, starts))
    return last // DAY


def _questions(selector: SeriesSelector) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield conditions and parameters, split into several statements for long lists. An empty list matches nothing."""
    lists: list[tuple[str, str, Collection[Any] | None, int]] = [
        ("project", "Array(String)", selector.projects, _NAMES),
        ("metric", "Array(String)", selector.metrics, _NAMES),
        ("job", "Array(UInt64)", selector.jobs, PARAMETERS),
        ("(cluster, node)", "Array(Tuple(String, String))", selector.nodes, _NODES),
    ]
    given = [(column, kind, sorted(set(values)), most) for column, kind, values, most in lists if values is not None]
    for parts in product(*(iterate_pieces(values, most) for _, _, values, most in given)):
        conditions = [f"{column} IN {{list{n}:{kind}}}" for n, (column, kind, _, _) in enumerate(given)]
        parameters: dict[str, Any] = {f"list{n}": list(part) for n, part in enumerate(parts)}
        if selector.metrics is None and not selector.special:
            conditions.append("NOT startsWith(metric, {special:String})")
            parameters["special"] = SPECIAL
        if selector.since is not None:
            conditions.append("last_day >= {day:UInt32}")
            parameters["day"] = selector.since // DAY
        yield " AND ".join(conditions) or "1", parameters
