"""Records which jobs were written, so that a process that caches all jobs can invalidate its cache.

Each transaction that writes jobs adds one row. Rows older than ten minutes are deleted, except for the newest rows. A
reader that still finds its last row has missed none.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import sqlalchemy as sa

from jobmeter.model.grouping import group_pairs
from jobmeter.registry.database import POSTGRESQL
from jobmeter.registry.schema import job_changes

KEEP_SECONDS = 600
_EVERY = 32
"""Average number of transactions between two deletions of old rows."""

Keys = Iterable[tuple[str, str]]
_column = job_changes.c
_SECONDS = {
    POSTGRESQL: "CAST(extract(epoch FROM clock_timestamp()) AS bigint)",
    "sqlite": "CAST(strftime('%s', 'now') AS integer)",
}
# PostgreSQL may commit transactions in another order than they wrote in: their numbers show which are open.
_TRANSACTION = {POSTGRESQL: "CAST(CAST(pg_current_xact_id() AS text) AS bigint)", "sqlite": "0"}
_OPEN = {POSTGRESQL: "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)", "sqlite": "1"}


class Changed(msgspec.Struct, omit_defaults=True):
    """Ids by project: jobs that were recorded or deleted, and jobs that samples alone created."""

    recorded: dict[str, list[str]] = {}
    sampled: dict[str, list[str]] = {}
    everything: bool = False


def iterate_jobs(ids: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yield the jobs, (project, id), of ids by project."""
    return ((project, job) for project, jobs in ids.items() for job in jobs)


class ChangePosition(msgspec.Struct, frozen=True):
    """A reader's position: the last row, and the first transaction that may still write an earlier row."""

    last: int
    open: int


_DECODER = msgspec.json.Decoder(Changed)


def notify(connection: sa.Connection, recorded: Keys = (), sampled: Keys = (), *, everything: bool = False) -> None:
    """Record the jobs that this transaction writes."""
    changed = Changed(group_pairs(sorted(set(recorded))), group_pairs(sorted(set(sampled))), everything)
    if not (changed.recorded or changed.sampled or everything):
        return
    kind = connection.dialect.name
    seconds: sa.ColumnElement[int] = sa.literal_column(_SECONDS[kind])
    values = {"transaction": sa.literal_column(_TRANSACTION[kind]), "written": seconds}
    payload = msgspec.json.encode(changed).decode()
    [row] = connection.execute(sa.insert(job_changes).values(payload=payload, **values).returning(_column.id)).one()
    if row % _EVERY == 0:
        old = _column.written < seconds - KEEP_SECONDS
        connection.execute(sa.delete(job_changes).where(_column.id < row, old))


def get_position(connection: sa.Connection) -> ChangePosition:
    """Return the position after everything that is visible to this transaction."""
    last = connection.scalar(sa.select(sa.func.coalesce(sa.func.max(_column.id), 0)))
    return ChangePosition(last or 0, _open(connection))


def list_recorded(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return the jobs, (project, id), that were recorded in the last ten minutes, possibly some more."""
    rows = connection.scalars(sa.select(_column.payload).order_by(_column.id))
    return [job for payload in rows for job in iterate_jobs(_DECODER.decode(payload).recorded)]


def read_changes(connection: sa.Connection, mark: ChangePosition) -> tuple[Changed | None, ChangePosition]:
    """Return the changes since the mark, and the next mark; None instead of changes if some were deleted since.

    Changes may repeat.
    """
    later = _column.id >= mark.last
    if connection.dialect.name == POSTGRESQL:
        later = sa.or_(later, _column.transaction >= mark.open)
    rows = connection.execute(sa.select(_column.id, _column.payload).where(later).order_by(_column.id)).all()
    if mark.last not in {row.id for row in rows}:
        return None, mark
    found = Changed()
    for row in rows:
        if row.id == mark.last:
            continue
        one = _DECODER.decode(row.payload)
        if one.everything:
            return None, mark
        for kind, keys in ((one.recorded, found.recorded), (one.sampled, found.sampled)):
            for project, ids in kind.items():
                keys.setdefault(project, []).extend(ids)
    return found, ChangePosition(rows[-1].id, _open(connection))


def _open(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(sa.literal_column(_OPEN[connection.dialect.name]))) or 0)
