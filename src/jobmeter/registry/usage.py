"""Counts of calls in the database, to which several servers add."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from jobmeter.model.time import DAY
from jobmeter.model.usage import Usage
from jobmeter.registry.schema import usage, usage_writers
from jobmeter.registry.statements import insert

_NAMES = tuple(column.name for column in usage.primary_key)


def add(connection: sa.Connection, writer: str, batch: int, rows: Sequence[Usage], now_ms: int) -> None:
    """See ``Registry.add_usage``."""
    last = connection.execute(sa.select(usage_writers.c.batch).where(usage_writers.c.writer == writer)).scalar()
    if last is not None and last >= batch:
        return
    statement = insert(connection, usage)
    # In one order everywhere: servers that add at one time wait for each other instead of locking each other out.
    values = sorted((msgspec.structs.asdict(row) for row in rows), key=lambda row: tuple(row[name] for name in _NAMES))
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=_NAMES,
            set_={name: usage.c[name] + statement.excluded[name] for name in ("calls", "failed")},
        ),
        values,
    )
    noted = insert(connection, usage_writers).values(writer=writer, batch=batch, written=now_ms)
    connection.execute(
        noted.on_conflict_do_update(
            index_elements=["writer"], set_={"batch": noted.excluded.batch, "written": noted.excluded.written}
        )
    )
    if last is None:
        connection.execute(sa.delete(usage_writers).where(usage_writers.c.written < now_ms - DAY))


def of_month(connection: sa.Connection, month: str, accounts: frozenset[str] | None) -> list[Usage]:
    """See ``Registry.usage``."""
    question = sa.select(usage).where(usage.c.month == month)
    if accounts is not None:
        question = question.where(usage.c.account.in_(sorted(accounts)))
    rows = connection.execute(question.order_by(*(usage.c[name] for name in _NAMES)))
    return [Usage(**row) for row in rows.mappings()]
