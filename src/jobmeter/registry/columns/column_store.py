"""The columns of all jobs: read at the start or at the first listing, and updated before each answer.

Every process has its own columns. The writes of all processes come from ``changes``, in the same transaction that
answers a page, so that a page and its total are exact.

One thread at a time uses the columns, for the duration of the array operations. Reads from the database come
afterwards, in the same transaction, while other threads use and change the columns.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from jobmeter.errors import UnavailableError
from jobmeter.model.job import Job, JobFilter, JobGroup, JobPage, JobState, JobView
from jobmeter.model.time import TimeRange
from jobmeter.registry import changes, finding_filter
from jobmeter.registry.columns import row_filter, select
from jobmeter.registry.columns.dictionary_column import Mask
from jobmeter.registry.columns.select import Rows, list_job_groups
from jobmeter.registry.columns.table import SAMPLED_COLUMNS, JobRow, JobTable, Key
from jobmeter.registry.conditions import FINDING, OPEN_FINDING, RELATED, TAG, Predicate, check
from jobmeter.registry.database import Database
from jobmeter.registry.groups import iterate_views
from jobmeter.registry.rows import make_job
from jobmeter.registry.schema import jobs, replicas, tags
from jobmeter.registry.statements import iterate_chunks, iterate_job_chunks

WAIT_SECONDS = 15.0
"""Seconds that a listing waits for other threads: the first listing after a start reads every job."""
_CHUNK = 2000
_MOST_WITHIN = 5_000
"""Most jobs whose open findings are queried job by job; for more jobs, all open findings are queried."""
_MOST = 3
"""If more than one job in ``_MOST`` is needed, all jobs are read: faster than looking up each."""
_CATCH_UP_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_FOR_EVER = -1.0
_ROW = tuple(jobs.c[name] for name in JobRow._fields)
_log = logging.getLogger("jobmeter.registry")


class ColumnStore:
    """The columns of one database. Safe for several threads."""

    def __init__(self, database: Database) -> None:
        """Reads nothing before ``prepare`` or the first listing: commands about keys need no columns."""
        self._database = database
        self._lock = threading.Lock()
        self._table: JobTable | None = None
        self._position = changes.ChangePosition(0, 0)
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def prepare(self) -> None:
        """Read every job on a thread, so that the first listing does not have to."""
        with self._lock:
            self._start()

    def list_jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """Return one page of jobs and the number of all that match."""
        predicates = check(question)
        with self._open_current() as current:
            table = current.table
            rows, demands = row_filter.find_matching(table, question, predicates, now_ms)
            orders = [_key(table, name, now_ms) for name in row_filter.ORDERS[question.sort]]
            if not demands:
                keys, total = table.list_keys(_page(question, rows, orders)), len(rows)
                current.release()
            else:
                chosen, values = _Chosen(table, rows), [order(rows) for order in orders]
                places = np.flatnonzero(self._mark_matching(current, chosen, demands)).astype(np.int32)
                page = _page(question, places, [one.take for one in values])
                with self._lock_columns():
                    keys, total = chosen.list_keys(page), len(places)
            return JobPage(_jobs(current.connection, keys, now_ms), total)

    def count_states(self, question: JobFilter, now_ms: int) -> dict[JobState, int]:
        """Return the number of matching jobs of each state that has some."""
        predicates = check(question)
        with self._open_current() as current:
            rows, demands = row_filter.find_matching(current.table, question, predicates, now_ms)
            ranks = row_filter.rank_states(current.table, rows, now_ms)
            if demands:
                ranks = ranks[self._mark_matching(current, _Chosen(current.table, rows), demands)]
            counts = np.bincount(ranks, minlength=len(JobState)).tolist()
            return {state: count for state, count in zip(sorted(JobState), counts, strict=True) if count}

    def list_job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        """Return the resource groups of jobs."""
        with self._open_current() as current:
            return list_job_groups(current.table, row_filter.find_grouped(current.table, projects))

    def group_jobs(
        self, projects: frozenset[str] | None, group: str | None, span: TimeRange, now_ms: int
    ) -> Iterator[JobView]:
        """Yield the jobs of a resource group (None: of all groups) that overlap the span."""
        with self._open_current() as current:
            keys = current.table.list_keys(row_filter.find_living(current.table, projects, group, span))
            current.release()
            yield from iterate_views(current.connection, keys, span, now_ms)

    def read_soon(self) -> None:
        """Schedule a read of the latest writes, so that the next query finds them read."""
        self._due.set()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._due.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        self._attempt(self._fill)
        while not self._stopped.wait(_PAUSE_SECONDS):
            self._due.wait(_CATCH_UP_SECONDS)
            self._due.clear()
            self._attempt(self._catch_up)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except UnavailableError as error:
            _log.warning("the columns of jobs are not up to date: %s", error.message)
        except Exception:  # noqa: BLE001 - the next listing reads everything again, and fails where this is a bug
            _log.exception("the columns of jobs are not up to date")

    def _fill(self) -> None:
        if not self._stopped.is_set():
            with self._open_current(_FOR_EVER):
                pass

    def _catch_up(self) -> None:
        if self._table is None or self._stopped.is_set():
            return
        with self._open_current(_FOR_EVER) as current:
            wasteful = current.table.wasteful
        if wasteful:
            # The old columns answer while new ones are read.
            with self._database.open_snapshot() as connection:
                fresh, position = self._load(connection)
            with self._lock:
                self._table, self._position = fresh, position

    @contextmanager
    def _open_current(self, seconds: float | None = None) -> "Iterator[_Current]":
        """Yield a transaction and the columns as it sees the jobs, locked until they are released.

        ``seconds``: see ``_lock_columns``.
        """
        with ExitStack() as held:
            locked = held.enter_context(ExitStack())
            locked.enter_context(self._lock_columns(seconds))
            connection = held.enter_context(self._database.open_snapshot())
            yield _Current(connection, self._bring_up_to_date(connection), locked.close)

    @contextmanager
    def _lock_columns(self, seconds: float | None = None) -> Iterator[None]:
        """Lock the columns. Raises UnavailableError after ``seconds``, by default ``WAIT_SECONDS``."""
        if not self._lock.acquire(timeout=WAIT_SECONDS if seconds is None else seconds):
            raise UnavailableError("the registry does not work now: its jobs are still being read")
        try:
            yield
        finally:
            self._lock.release()

    def _mark_matching(self, current: "_Current", chosen: "_Chosen", demands: Sequence[row_filter.Demand]) -> Mask:
        """Release the columns and mark the jobs that meet every demand."""
        current.release()
        left = np.ones(chosen.count, np.bool_)
        for one in demands:
            left &= one.mark_jobs(left, partial(self._look_up, current.connection, chosen))
        return left

    def _look_up(self, connection: sa.Connection, chosen: "_Chosen", one: Predicate, left: Mask) -> Mask:
        """Look up a predicate in the database: a ``row_filter.Lookup``."""
        found = np.zeros(len(left), np.bool_)
        name, path = one.field[0], one.field[1:]
        if name in RELATED:
            within = None
            if name == OPEN_FINDING and np.count_nonzero(left) <= _MOST_WITHIN:
                with self._lock_columns():
                    within = chosen.list_keys(np.flatnonzero(left))
            related = list(_find_related(connection, name, one.texts, within))
            with self._lock_columns():
                found[chosen.find_places(related)] = True
            return found
        places = np.flatnonzero(left)
        with self._lock_columns():
            keys, count = chosen.list_keys(places), chosen.table.count
        by_key = dict(zip(keys, places.tolist(), strict=True))
        for key, text in _read_texts(connection, jobs.c[name], by_key, count):
            if one.fits_document(text, path) if path else one.fits_text(text):
                found[by_key[key]] = True
        return found

    def _bring_up_to_date(self, connection: sa.Connection) -> JobTable:
        # No columns are better than half-updated ones.
        table, self._table = self._table, None
        if table is not None:
            changed, self._position = changes.read_changes(connection, self._position)
            if changed is None:
                table = None
            else:
                _apply(connection, table, changed)
        if table is None:
            table, self._position = self._load(connection)
            self._start()
        self._table = table
        return table

    def _start(self) -> None:
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="registry-columns", daemon=True)
            self._thread.start()

    def _load(self, connection: sa.Connection) -> tuple[JobTable, changes.ChangePosition]:
        position = changes.get_position(connection)
        count = connection.scalar(sa.select(sa.func.count()).select_from(jobs)) or 0
        table = JobTable(count + count // 8)
        for some in connection.execute(sa.select(*_ROW), execution_options={"yield_per": _CHUNK}).partitions():
            if self._stopped.is_set():
                raise UnavailableError("the registry does not work now: the server stops")
            table.load(some)
        table.end_load()
        return table, position


def _apply(connection: sa.Connection, table: JobTable, changed: changes.Changed) -> None:
    recorded = set(changes.iterate_jobs(changed.recorded))
    sampled = set(changes.iterate_jobs(changed.sampled)) - recorded
    columns = tuple(jobs.c[name] for name in SAMPLED_COLUMNS)
    recorded.update(table.put_sampled(row for row in _select_chunks(connection, columns, sampled)))
    codes = [JobRow._make(row) for row in _select_chunks(connection, _ROW, recorded)]
    table.put(codes)
    table.drop(recorded - {(job.project, job.id) for job in codes})


def _select_chunks(
    connection: sa.Connection, columns: Sequence[sa.ColumnElement[Any]], keys: Iterable[Key]
) -> Iterator[sa.Row[Any]]:
    for project, ids in iterate_job_chunks(keys):
        yield from connection.execute(sa.select(*columns).where(jobs.c.project == project, jobs.c.id.in_(ids))).all()


def _read_texts(
    connection: sa.Connection, column: sa.ColumnElement[Any], keys: Mapping[Key, int], count: int
) -> Iterator[tuple[Key, str]]:
    """Yield the texts of a column for these jobs, of ``count`` in all; jobs without a text are left out."""
    columns = (jobs.c.project, jobs.c.id, column)
    rows: Iterator[Sequence[Any]] = _select_chunks(connection, columns, keys)
    if len(keys) > count // _MOST:
        every = connection.execute(sa.select(*columns), execution_options={"yield_per": _CHUNK})
        rows = chain.from_iterable(every.partitions())
    for project, job, text in rows:
        if text is not None and (project, job) in keys:
            yield (project, job), text


class _Current(NamedTuple):
    """A transaction, and the columns in the state that the transaction sees.

    After ``release`` other threads may use and change the columns.
    """

    connection: sa.Connection
    table: JobTable
    release: Callable[[], None]


class _Chosen:
    """A snapshot of some jobs, each at a position. Rows of the table may later belong to other jobs.

    Numbers of texts never change. Every method is called while the columns are locked.
    """

    def __init__(self, table: JobTable, rows: Rows) -> None:
        self.table = table
        self._ids = table.names["id"].get_numbers(table.count)[rows]
        self._projects = table.texts["project"].get_numbers(table.count)[rows]
        self.count = len(self._ids)
        self._order = np.argsort(self._ids, kind="stable")
        self._sorted = self._ids[self._order]

    def list_keys(self, places: NDArray[np.integer[Any]]) -> list[Key]:
        """Return project and id of the jobs at these positions."""
        projects = self.table.texts["project"].values
        ids = self.table.names["id"].get_texts(self._ids[places])
        return list(zip([projects[number] for number in self._projects[places].tolist()], ids, strict=True))

    def find_places(self, keys: Iterable[Key]) -> list[int]:
        """Return the positions of the given jobs that are in the snapshot."""
        projects, numbers = self.table.texts["project"].values, self.table.names["id"].find_number
        found = list[int]()
        for project, job in keys:
            number = numbers(job)
            if number is not None:
                first, end = np.searchsorted(self._sorted, (number, number + 1)).tolist()
                own = self._order[first:end].tolist()
                found += [place for place in own if projects[self._projects[place]] == project]
        return found


def _find_related(
    connection: sa.Connection, field: str, values: Sequence[str], within: Iterable[Key] | None
) -> Iterator[Key]:
    """Yield the jobs with one of the values in a related table. ``within`` restricts open findings to these jobs."""
    if within is not None:
        statement = finding_filter.open_keys(values)
        for project, ids in iterate_job_chunks(within):
            for row in connection.execute(statement.where(*finding_filter.select_jobs(project, ids))):
                yield row.project, row.job
        return
    for some in iterate_chunks(values):
        for row in connection.execute(_KEYS[field](some)):
            yield row.project, row.job


def _make_name_search(column: sa.Column[str]) -> Callable[[Sequence[str]], sa.Select[tuple[str, str]]]:
    """Return a function that selects the jobs with one of the given names in the table of ``column``."""
    keys = sa.select(column.table.c.project, column.table.c.job).distinct()
    return lambda names: keys.where(column.in_(names))


_KEYS: Mapping[str, Callable[[Sequence[str]], sa.Select[tuple[str, str]]]] = {
    "node": _make_name_search(replicas.c.node),
    TAG: _make_name_search(tags.c.tag),
    FINDING: finding_filter.select_keys,
    OPEN_FINDING: finding_filter.open_keys,
}
"""Select project and id of the jobs that have one of the given values in a related table, by field."""


def _page(question: JobFilter, rows: Rows, orders: Sequence[select.Key]) -> Rows:
    if not question.limit or question.offset >= len(rows):
        return rows[:0]
    paging = {"offset": question.offset, "limit": question.limit}
    return select.cut_page(rows, orders, descending=question.descending, **paging)


def _key(table: JobTable, name: str, now_ms: int) -> select.Key:
    if name == "duration":
        return lambda rows: row_filter.compute_durations(table, rows, now_ms)
    if name == "state":
        return lambda rows: row_filter.rank_states(table, rows, now_ms)
    if name == "active":
        return lambda rows: row_filter.rank_active(table, rows, now_ms)
    return lambda rows: table.sort_values(name, rows)


def _jobs(connection: sa.Connection, keys: Sequence[Key], now_ms: int) -> list[Job]:
    found = {(row.project, row.id): make_job(row, now_ms) for row in _select_chunks(connection, tuple(jobs.c), keys)}
    return [found[key] for key in keys]
