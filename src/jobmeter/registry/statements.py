"""Pieces of SQL that both databases take."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from jobmeter.registry.database import POSTGRESQL

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

CHUNK = 400
"""Most members of one IN list."""
NUL = "\N{REPLACEMENT CHARACTER}"
"""What a NUL in a text is stored as: PostgreSQL has none."""

Insert: TypeAlias = "sqlite.Insert | postgresql.Insert"


def insert(connection: sa.Connection, table: sa.Table) -> Insert:
    """An INSERT with ON CONFLICT, which SQLAlchemy has in its dialects."""
    if connection.dialect.name == POSTGRESQL:
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - a tenth of a start, which SQLite does not need

        return postgresql.insert(table)
    return sqlite.insert(table)


def add_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary key is not there yet."""
    if rows:
        connection.execute(insert(connection, table).on_conflict_do_nothing(), list(rows))


def widen(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    times: tuple[str, str],
    fill: Sequence[str] = (),
) -> None:
    """Insert the rows, or move the two ``times`` of those that are there outwards and ``fill`` texts that are empty.

    A row that says nothing new is not written (PostgreSQL locks it all the same, until the transaction ends).
    """
    if not rows:
        return
    statement = insert(connection, table)
    fresh = statement.excluded
    first, last = (table.c[name] for name in times)
    moves: dict[str, tuple[sa.ColumnElement[Any], sa.ColumnElement[bool]]] = {
        first.name: (first, sa.or_(first.is_(None), first > fresh[first.name])),
        last.name: (last, sa.or_(last.is_(None), last < fresh[last.name])),
    }
    moves.update({name: (table.c[name], sa.and_(table.c[name] == "", fresh[name] != "")) for name in fill})
    changes = {name: sa.case((moved, fresh[name]), else_=column) for name, (column, moved) in moves.items()}
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[column.name for column in table.primary_key],
            set_=changes,
            where=sa.or_(*(moved for _, moved in moves.values())),
        ),
        list(rows),
    )


def given(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """The value handed over for a column of an UPDATE: a parameter named ``new_`` and the column."""
    return sa.bindparam(f"new_{column.name}", type_=column.type)


def coalesce_to_stored(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """What is handed over, or what stands there when that is None."""
    return sa.func.coalesce(given(column), column)


class RowUpdates(msgspec.Struct, frozen=True):
    """An UPDATE of single rows, by parameters ``key_NAME`` and ``new_NAME``; ``plain`` are those that may be None."""

    statement: sa.Update
    plain: frozenset[str]

    def run(self, connection: sa.Connection, changes: Collection[Mapping[str, Any]]) -> None:
        """Write the rows."""
        if changes:
            connection.execute(self.statement, list(changes))


def update_each(
    table: sa.Table,
    keys: Sequence[str],
    columns: Sequence[str],
    plain: Sequence[str],
    **fixed: sa.ColumnElement[Any],
) -> RowUpdates:
    """``plain`` columns become what is handed over, the others where it is not None, ``fixed`` ones as said."""
    changes = {name: given(table.c[name]) if name in plain else coalesce_to_stored(table.c[name]) for name in columns}
    named = (table.c[name] == sa.bindparam(f"key_{name}") for name in keys)
    return RowUpdates(
        sa.update(table).where(*named).values({**changes, **fixed}), frozenset(f"new_{name}" for name in plain)
    )


def one_of(element: sa.ColumnElement[Any], values: Iterable[str]) -> sa.ColumnElement[bool]:
    """IN with literal words, in the form that executemany takes."""
    return sa.or_(*(element == sa.literal_column(f"'{value}'") for value in values))


def within(column: sa.Column[Any], names: Collection[str] | None) -> sa.ColumnElement[bool]:
    """The condition that a column has one of those names; None: any."""
    return sa.true() if names is None else column.in_(sorted(names))


def by_project(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The ids of jobs, (project, id), of each project."""
    found: dict[str, list[str]] = {}
    for project, job in keys:
        found.setdefault(project, []).append(job)
    return found


def job_chunks(keys: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """The jobs, (project, id), as runs of ids of one project."""
    return ((project, some) for project, ids in by_project(keys).items() for some in chunks(ids))


def chunks(items: Sequence[Any], size: int = CHUNK) -> Iterator[Sequence[Any]]:
    """The items in runs of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def clean(text: str) -> str:
    """The text as it is stored: without what a database cannot keep."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", NUL).encode("utf-8", "replace").decode()


def renamed(values: Mapping[str, Any], names: Iterable[str], prefix: str) -> dict[str, Any]:
    """Those values under ``prefix`` and their names: parameters must not be called like columns."""
    return {f"{prefix}{name}": values[name] for name in names}
