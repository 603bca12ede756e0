"""Which jobs were written lately: what every process that keeps something of all jobs reads to stay true.

Each transaction that writes jobs leaves one row. Rows older than ten minutes go, but for the last ones: who finds the
row that it has read last knows that it has missed none.
"""

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from jobmeter.registry.database import POSTGRESQL
from jobmeter.registry.schema import job_changes

KEEP_SECONDS = 600
_EVERY = 32
"""Old rows are looked for at one transaction of so many."""

Keys = Iterable[tuple[str, str]]
_column = job_changes.c
_SECONDS = {
    POSTGRESQL: "CAST(extract(epoch FROM clock_timestamp()) AS bigint)",
    "sqlite": "CAST(strftime('%s', 'now') AS integer)",
}
# Transactions of PostgreSQL may end in another order than that in which they wrote: their numbers tell what is open.
_TRANSACTION = {POSTGRESQL: "CAST(CAST(pg_current_xact_id() AS text) AS bigint)", "sqlite": "0"}
_OPEN = {POSTGRESQL: "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)", "sqlite": "1"}


class Changed(msgspec.Struct, omit_defaults=True):
    """Ids by project: jobs that were recorded or deleted, and those of which only samples told."""

    recorded: dict[str, list[str]] = {}
    seen: dict[str, list[str]] = {}
    everything: bool = False


class Mark(msgspec.Struct, frozen=True):
    """How far somebody has read: the last row, and the first transaction that may still write one before it."""

    last: int
    open: int


_DECODER = msgspec.json.Decoder(Changed)


def tell(connection: sa.Connection, recorded: Keys = (), seen: Keys = (), *, everything: bool = False) -> None:
    """Leave word of what this transaction writes."""
    changed = Changed(_by_project(recorded), _by_project(seen), everything)
    if not (changed.recorded or changed.seen or everything):
        return
    kind = connection.dialect.name
    seconds: sa.ColumnElement[int] = sa.literal_column(_SECONDS[kind])
    values = {"transaction": sa.literal_column(_TRANSACTION[kind]), "written": seconds}
    told = msgspec.json.encode(changed).decode()
    [row] = connection.execute(sa.insert(job_changes).values(told=told, **values).returning(_column.id)).one()
    if row % _EVERY == 0:
        old = _column.written < seconds - KEEP_SECONDS
        connection.execute(sa.delete(job_changes).where(_column.id < row, old))


def now(connection: sa.Connection) -> Mark:
    """The mark of one who knows everything that this transaction sees."""
    last = connection.scalar(sa.select(sa.func.coalesce(sa.func.max(_column.id), 0)))
    return Mark(last or 0, _open(connection))


def recorded(connection: sa.Connection) -> list[tuple[str, str]]:
    """The jobs, (project, id), that were recorded lately: ten minutes are told, more may be."""
    rows = connection.scalars(sa.select(_column.told).order_by(_column.id))
    return [(project, job) for told in rows for project, ids in _DECODER.decode(told).recorded.items() for job in ids]


def since(connection: sa.Connection, mark: Mark) -> tuple[Changed | None, Mark]:
    """What was written since the mark, and the next one; None where that cannot be told any more.

    Some of it may have been told before.
    """
    later = _column.id >= mark.last
    if connection.dialect.name == POSTGRESQL:
        later = sa.or_(later, _column.transaction >= mark.open)
    rows = connection.execute(sa.select(_column.id, _column.told).where(later).order_by(_column.id)).all()
    if mark.last not in {row.id for row in rows}:
        return None, mark
    found = Changed()
    for row in rows:
        if row.id == mark.last:
            continue
        one = _DECODER.decode(row.told)
        if one.everything:
            return None, mark
        for kind, held in ((one.recorded, found.recorded), (one.seen, found.seen)):
            for project, ids in kind.items():
                held.setdefault(project, []).extend(ids)
    return found, Mark(rows[-1].id, _open(connection))


def _open(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(sa.literal_column(_OPEN[connection.dialect.name]))) or 0)


def _by_project(keys: Keys) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for project, job in sorted(set(keys)):
        found.setdefault(project, []).append(job)
    return found
