"""Counts of calls in the database, to which several servers add."""

from collections.abc import Sequence
from operator import itemgetter

import msgspec
import sqlalchemy as sa

from jobmeter.model.time import DAY
from jobmeter.model.usage import Usage
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import usage, usage_writers
from jobmeter.registry.statements import insert, match_names

_NAMES = tuple(column.name for column in usage.primary_key)


class UsageTable:
    """The counts of calls. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, writer: str, batch: int, rows: Sequence[Usage], now_ms: int) -> None:
        """Add counts of calls.

        ``writer`` names the process that counted, ``batch`` grows with each of its batches. A batch that was added
        before adds nothing, so it may be sent again after an unclear failure.
        """
        with self._database.write(SHORT_SECONDS) as connection:
            last = connection.execute(sa.select(usage_writers.c.batch).where(usage_writers.c.writer == writer)).scalar()
            if last is not None and last >= batch:
                return
            statement = insert(connection, usage)
            # In the same order everywhere: servers that add at the same time wait for each other without a deadlock.
            values = sorted(map(msgspec.structs.asdict, rows), key=itemgetter(*_NAMES))
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

    def read_calls(self, month: str, accounts: frozenset[str] | None = None) -> list[Usage]:
        """Return the calls of a month by account (None: every account), API and operation, sorted."""
        question = sa.select(usage).where(usage.c.month == month, match_names(usage.c.account, accounts))
        with self._database.read() as connection:
            rows = connection.execute(question.order_by(*(usage.c[name] for name in _NAMES)))
            return [msgspec.convert(row, Usage, from_attributes=True) for row in rows]
