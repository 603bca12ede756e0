"""The columns of all jobs: read when a server starts or at the first listing, brought up to date before each answer.

Every process has its own. What anybody writes is given by ``changes``, and read in the same transaction in which a page
is answered, so that a page and its total are exact.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import sqlalchemy as sa

from jobmeter.errors import UnavailableError
from jobmeter.model.job import Job, JobFilter, JobGroup, JobPage, JobView
from jobmeter.model.time import TimeRange
from jobmeter.registry import changes, finding_filter
from jobmeter.registry.columns import row_filter, select
from jobmeter.registry.columns.job_groups import job_groups
from jobmeter.registry.columns.select import Rows
from jobmeter.registry.columns.table import SAMPLED_COLUMNS, JobRow, Key, Table
from jobmeter.registry.conditions import FINDING, RELATED, Predicate, check
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.groups import views_of
from jobmeter.registry.rows import job_of
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import chunks, job_chunks

WAIT_SECONDS = 15.0
"""How long a listing waits for others: for the first one after a start, which reads every job."""
_CHUNK = 2000
_MOST = 3
"""Of more jobs than one in so many all are read: that takes less time than looking for each."""
_CATCH_UP_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_FOR_EVER = -1.0
_ROW = tuple(jobs.c[name] for name in JobRow._fields)
_log = logging.getLogger("jobmeter.registry")


class ColumnStore:
    """The columns of one database. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        """Nothing is read before ``prepare`` or the first listing: who manages keys needs no columns."""
        self._database = database
        self._lock = threading.Lock()
        self._table: Table | None = None
        self._position = changes.ChangePosition(0, 0)
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def prepare(self) -> None:
        """Read every job on a thread, so that the first listing does not have to."""
        with self._lock:
            self._start()

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """See ``Registry.jobs``."""
        predicates = check(question)
        with self._current() as (connection, table):
            rows = row_filter.matching(table, question, predicates, now_ms, partial(_lookup, connection, table))
            page = _page(table, question, rows, now_ms)
            return JobPage(_jobs(connection, table.keys(page), now_ms), len(rows))

    def job_groups(self, projects: frozenset[str] | None) -> list[JobGroup]:
        """See ``Registry.job_groups``."""
        with self._current() as (_, table):
            return job_groups(table, row_filter.grouped(table, projects))

    def group_jobs(self, projects: frozenset[str] | None, group: str, span: TimeRange, now_ms: int) -> list[JobView]:
        """See ``Registry.group_jobs``."""
        with self._current() as (connection, table):
            rows = row_filter.living(table, projects, group, span)
            return views_of(connection, table.keys(rows), span, now_ms)

    def written(self) -> None:
        """Something was written: read it soon, so that no question has to."""
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
            with self._current(_FOR_EVER):
                pass

    def _catch_up(self) -> None:
        if self._table is None or self._stopped.is_set():
            return
        with self._current(_FOR_EVER) as (_, table):
            wasteful = table.wasteful
        if wasteful:
            # The old ones answer while new ones are read.
            with self._snapshot() as connection:
                fresh, position = self._load(connection)
            with self._lock:
                self._table, self._position = fresh, position

    @contextmanager
    def _current(self, seconds: float | None = None) -> Iterator[tuple[sa.Connection, Table]]:
        """A transaction, and the columns as it sees the jobs; waits for others for ``WAIT_SECONDS``, or so long."""
        if not self._lock.acquire(timeout=WAIT_SECONDS if seconds is None else seconds):
            raise UnavailableError("the registry does not work now: its jobs are still being read")
        try:
            with self._snapshot() as connection:
                yield connection, self._brought_up(connection)
        finally:
            self._lock.release()

    def _brought_up(self, connection: sa.Connection) -> Table:
        # No columns rather than some that are half true.
        table, self._table = self._table, None
        if table is not None:
            changed, self._position = changes.since(connection, self._position)
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

    def _load(self, connection: sa.Connection) -> tuple[Table, changes.ChangePosition]:
        position = changes.now(connection)
        count = connection.scalar(sa.select(sa.func.count()).select_from(jobs)) or 0
        table = Table(count + count // 8)
        for some in connection.execute(sa.select(*_ROW), execution_options={"yield_per": _CHUNK}).partitions():
            if self._stopped.is_set():
                raise UnavailableError("the registry does not work now: the server stops")
            table.load(some)
        table.end_load()
        return table, position

    @contextmanager
    def _snapshot(self) -> Iterator[sa.Connection]:
        with self._database.read() as connection:
            if self._database.kind == POSTGRESQL:
                connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            yield connection


def _apply(connection: sa.Connection, table: Table, changed: changes.Changed) -> None:
    recorded = set(changes.jobs_of(changed.recorded))
    sampled = set(changes.jobs_of(changed.sampled)) - recorded
    columns = tuple(jobs.c[name] for name in SAMPLED_COLUMNS)
    recorded.update(table.put_sampled(row for row in _found(connection, columns, sampled)))
    codes = [JobRow._make(row) for row in _found(connection, _ROW, recorded)]
    table.put(codes)
    table.drop(recorded - {(job.project, job.id) for job in codes})


def _found(
    connection: sa.Connection, columns: Sequence[sa.ColumnElement[Any]], keys: Iterable[Key]
) -> Iterator[sa.Row[Any]]:
    for project, ids in job_chunks(keys):
        yield from connection.execute(sa.select(*columns).where(jobs.c.project == project, jobs.c.id.in_(ids))).all()


def _stored(
    connection: sa.Connection, column: sa.ColumnElement[Any], keys: Mapping[Key, int], count: int
) -> Iterator[tuple[Key, str]]:
    """That column of those jobs, of ``count`` in all, where it has a text."""
    columns = (jobs.c.project, jobs.c.id, column)
    rows: Iterator[Sequence[Any]] = _found(connection, columns, keys)
    if len(keys) > count // _MOST:
        every = connection.execute(sa.select(*columns), execution_options={"yield_per": _CHUNK})
        rows = chain.from_iterable(every.partitions())
    for project, job, text in rows:
        if text is not None and (project, job) in keys:
            yield (project, job), text


def _lookup(connection: sa.Connection, table: Table, one: Predicate, rows: Rows) -> Iterator[int]:
    """See ``row_filter.Lookup``."""
    name = one.field[0]
    if name in RELATED:
        found = (table.row(project, job) for project, job in _related(connection, name, one.texts))
        yield from (row for row in found if row is not None)
        return
    by_key = dict(zip(table.keys(rows), rows.tolist(), strict=True))
    path = one.field[1:]
    for key, text in _stored(connection, jobs.c[name], by_key, table.count):
        if one.fits_document(text, path) if path else one.fits_text(text):
            yield by_key[key]


def _related(connection: sa.Connection, field: str, values: Sequence[str]) -> Iterator[Key]:
    for some in chunks(values):
        members = sa.select(replicas.c.project, replicas.c.job).where(replicas.c.node.in_(some)).distinct()
        for row in connection.execute(finding_filter.keys(some) if field == FINDING else members):
            yield row.project, row.job


def _page(table: Table, question: JobFilter, rows: Rows, now_ms: int) -> Rows:
    if not question.limit or question.offset >= len(rows):
        return rows[:0]
    keys = [_key(table, name, now_ms) for name in row_filter.ORDERS[question.sort]]
    paging = {"offset": question.offset, "limit": question.limit}
    return select.page(rows, keys, descending=question.descending, **paging)


def _key(table: Table, name: str, now_ms: int) -> select.Key:
    if name == "duration":
        return lambda rows: row_filter.durations(table, rows, now_ms)
    if name == "state":
        return lambda rows: row_filter.state_ranks(table, rows, now_ms)
    return lambda rows: table.sort_values(name, rows)


def _jobs(connection: sa.Connection, keys: Sequence[Key], now_ms: int) -> list[Job]:
    found = {(row.project, row.id): job_of(row, now_ms) for row in _found(connection, tuple(jobs.c), keys)}
    return [found[key] for key in keys]
