"""Pieces of SQL for both databases."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from jobmeter.model.grouping import group_pairs
from jobmeter.registry.database import POSTGRESQL

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

CHUNK = 400
"""Most members of one IN list."""
NUL = "\N{REPLACEMENT CHARACTER}"
"""Replacement for NUL in a text: PostgreSQL cannot store NUL."""

Insert: TypeAlias = "sqlite.Insert | postgresql.Insert"


def insert(connection: sa.Connection, table: sa.Table) -> Insert:
    """Return an INSERT with ON CONFLICT, which SQLAlchemy has only in its dialects."""
    if connection.dialect.name == POSTGRESQL:
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - a tenth of a start, which SQLite does not need

        return postgresql.insert(table)
    return sqlite.insert(table)


def add_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary key does not exist yet."""
    if rows:
        connection.execute(insert(connection, table).on_conflict_do_nothing(), list(rows))


def widen(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    times: tuple[str, str],
    fill: Sequence[str] = (),
) -> None:
    """Insert rows; for existing ones widen the two ``times`` and fill empty ``fill`` texts.

    A row without changes is not written (PostgreSQL still locks it until the transaction ends).
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


def make_parameter(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return the parameter for a column of an UPDATE, named ``new_`` and the column."""
    return sa.bindparam(f"new_{column.name}", type_=column.type)


def coalesce_to_stored(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return the given value of a column, or the stored one if the given value is NULL."""
    return sa.func.coalesce(make_parameter(column), column)


class RowUpdates(msgspec.Struct, frozen=True):
    """Writes single rows by parameters ``key_NAME`` and ``new_NAME``; ``plain`` are those that may be None."""

    table: sa.Table
    statement: sa.Update
    plain: frozenset[str]
    names: Mapping[str, str]
    """The column of each parameter."""

    def run(self, connection: sa.Connection, changes: Collection[Mapping[str, Any]]) -> None:
        """Update the rows."""
        if changes:
            connection.execute(self.statement, list(changes))

    def add(self, connection: sa.Connection, changes: Collection[Mapping[str, Any]], **fixed: object) -> None:
        """Insert rows. The caller holds a lock that ensures that they do not exist.

        ``fixed`` are the values of further columns.
        """
        if not changes:
            return
        # NULL stands for a value that is not given: a text without one is empty.
        names = [(given, name, None if self.table.c[name].nullable else "") for given, name in self.names.items()]
        rows = [
            {**fixed, **{name: empty if (value := change[given]) is None else value for given, name, empty in names}}
            for change in changes
        ]
        connection.execute(sa.insert(self.table), rows)


def update_each(
    table: sa.Table,
    keys: Sequence[str],
    columns: Sequence[str],
    plain: Sequence[str],
    **fixed: sa.ColumnElement[Any],
) -> RowUpdates:
    """Make an UPDATE of single rows.

    ``plain`` columns get the given value, other columns get it unless it is None, ``fixed`` ones get their expressions.
    """
    changes = {
        name: make_parameter(table.c[name]) if name in plain else coalesce_to_stored(table.c[name]) for name in columns
    }
    named = (table.c[name] == sa.bindparam(f"key_{name}") for name in keys)
    return RowUpdates(
        table,
        sa.update(table).where(*named).values({**changes, **fixed}),
        frozenset(f"new_{name}" for name in plain),
        {**{f"key_{name}": name for name in keys}, **{f"new_{name}": name for name in columns}},
    )


def match_names(column: sa.Column[Any], names: Collection[str] | None) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of these names; None: any."""
    return sa.true() if names is None else column.in_(sorted(names))


def iterate_job_chunks(keys: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the jobs, (project, id), as runs of ids of one project."""
    return ((project, some) for project, ids in group_pairs(keys).items() for some in iterate_chunks(ids))


def iterate_chunks(items: Sequence[Any], size: int = CHUNK) -> Iterator[Sequence[Any]]:
    """Yield the items in runs of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def clean_text(text: str) -> str:
    """Return the text in its stored form: without characters that a database cannot store."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", NUL).encode("utf-8", "replace").decode()


def prefix_names(values: Mapping[str, Any], names: Iterable[str], prefix: str) -> dict[str, Any]:
    """Prefix the names of values: parameters must not be named like columns."""
    return {f"{prefix}{name}": values[name] for name in names}
