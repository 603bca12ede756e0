"""The columns of a large registry: read in the background, brought up to date before each answer.

Every process has its own. What anybody writes is told by ``changes``, and read in the same transaction in which a page
is answered, so that a page and its total are exact. Until the columns are there, and for what they do not have, the
database answers.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from jobmeter.errors import UnavailableError
from jobmeter.model.job import Job, JobFilter, JobPage, JobView
from jobmeter.model.time import TimeRange
from jobmeter.registry import changes
from jobmeter.registry.columns import select, wanted
from jobmeter.registry.columns.select import Rows
from jobmeter.registry.columns.table import NAMES, SEEN, Key, Known, Table
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.groups import views_of
from jobmeter.registry.rows import job_of
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import chunks

_CHUNK = 2000
_CATCH_UP_SECONDS = 2.0
_KNOWN = tuple(jobs.c[name] for name in Known._fields)
_log = logging.getLogger("jobmeter.registry")


class Keeper:
    """The columns of one database. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        """Read everything in a thread of its own."""
        self._database = database
        self._lock = threading.Lock()
        self._table: Table | None = None
        self._mark = changes.Mark(0, 0)
        self._stopped = threading.Event()
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-columns", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether the columns are there."""
        return self._table is not None

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage | None:
        """The page, for a question that can be meant; None where the database has to answer."""
        if self._table is None:
            return None
        with self._lock, self._snapshot() as connection:
            table = self._current(connection)
            if table is None or not wanted.answers(table, question):
                return None
            rows = wanted.matching(table, question, now_ms, lambda nodes: _on_nodes(connection, nodes))
            page = _page(table, question, rows, now_ms)
            return JobPage(_jobs(connection, table.keys(page.tolist()), now_ms), len(rows))

    def group_jobs(
        self, projects: frozenset[str] | None, group: str, span: TimeRange, now_ms: int
    ) -> list[JobView] | None:
        """See ``Registry.group_jobs``; None where the database has to answer."""
        if self._table is None:
            return None
        with self._lock, self._snapshot() as connection:
            table = self._current(connection)
            if table is None:
                return None
            rows = wanted.living(table, projects, group, span)
            return views_of(connection, table.keys(rows.tolist()), span, now_ms)

    def written(self) -> None:
        """Something was written: read it soon, so that no question has to."""
        self._due.set()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._table is None:
                    self._load()
                else:
                    with self._lock, self._snapshot() as connection:
                        self._current(connection)
            except UnavailableError as error:
                _log.warning("listings are answered by the database for now: %s", error.message)
            except Exception:  # noqa: BLE001 - a bug must neither end in silence nor read everything again and again
                self._table = None
                _log.exception("listings are answered by the database from now on")
                return
            self._due.wait(_CATCH_UP_SECONDS)
            self._due.clear()

    def _load(self) -> None:
        with self._snapshot() as connection:
            mark = changes.now(connection)
            count = connection.scalar(sa.select(sa.func.count()).select_from(jobs)) or 0
            table = Table(count + count // 8)
            names = table.names["name"]
            each = sa.select(jobs.c.name).distinct().order_by(jobs.c.name)
            numbers = {row.name: names.take(row.name) for some in self._rows(connection, each) for row in some}
            everything = sa.select(*_KNOWN).order_by(jobs.c.id)
            for some in self._rows(connection, everything):
                table.load([Known._make(row) for row in some], numbers)
        for name in NAMES:
            table.names[name].settle()
        if not self._stopped.is_set():
            with self._lock:
                self._table, self._mark = table, mark

    def _rows(self, connection: sa.Connection, question: sa.Select[Any]) -> Iterator[Sequence[sa.Row[Any]]]:
        result = connection.execution_options(yield_per=_CHUNK).execute(question)
        for some in result.partitions():
            if self._stopped.is_set():
                return
            yield some

    def _current(self, connection: sa.Connection) -> Table | None:
        """The columns as that transaction sees the jobs. None where they have to be read anew."""
        table = self._table
        if table is None:
            return None
        try:
            changed, mark = changes.since(connection, self._mark)
            if changed is None or table.wasteful:
                self._table = None
                self._due.set()
                return None
            _apply(connection, table, changed)
        except BaseException:
            # No columns rather than some that are half true.
            self._table = None
            raise
        self._mark = mark
        return table

    @contextmanager
    def _snapshot(self) -> Iterator[sa.Connection]:
        with self._database.read() as connection:
            if self._database.kind == POSTGRESQL:
                connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            yield connection


def _apply(connection: sa.Connection, table: Table, changed: changes.Changed) -> None:
    recorded = {(project, job) for project, ids in changed.recorded.items() for job in ids}
    seen = {(project, job) for project, ids in changed.seen.items() for job in ids} - recorded
    columns = tuple(jobs.c[name] for name in SEEN)
    recorded.update(table.see(row for row in _found(connection, columns, seen)))
    known = [Known._make(row) for row in _found(connection, _KNOWN, recorded)]
    table.put(known)
    table.drop(recorded - {(job.project, job.id) for job in known})


def _found(
    connection: sa.Connection, columns: Sequence[sa.ColumnElement[Any]], keys: Iterable[Key]
) -> Iterator[sa.Row[Any]]:
    for project, ids in _by_project(keys).items():
        for some in chunks(ids):
            yield from connection.execute(sa.select(*columns).where(jobs.c.project == project, jobs.c.id.in_(some)))


def _by_project(keys: Iterable[Key]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for project, job in keys:
        found.setdefault(project, []).append(job)
    return found


def _on_nodes(connection: sa.Connection, nodes: Sequence[str]) -> Iterator[Key]:
    for some in chunks(nodes):
        held = sa.select(replicas.c.project, replicas.c.job).where(replicas.c.node.in_(some)).distinct()
        for row in connection.execute(held):
            yield row.project, row.job


def _page(table: Table, question: JobFilter, rows: Rows, now_ms: int) -> Rows:
    if not question.limit or question.offset >= len(rows):
        return rows[:0]
    keys = [_key(table, name, now_ms) for name in wanted.ORDERS[question.sort]]
    paging = {"offset": question.offset, "limit": question.limit}
    return select.page(rows, keys, descending=question.descending, **paging)


def _key(table: Table, name: str, now_ms: int) -> select.Key:
    if name == "duration":
        return lambda rows: wanted.durations(table, rows, now_ms)
    if name == "state":
        return lambda rows: wanted.state_ranks(table, rows, now_ms)
    return lambda rows: table.sort_values(name, rows)


def _jobs(connection: sa.Connection, keys: Sequence[Key], now_ms: int) -> list[Job]:
    found = {(row.project, row.id): job_of(row, now_ms) for row in _found(connection, tuple(jobs.c), keys)}
    return [found[key] for key in keys]
