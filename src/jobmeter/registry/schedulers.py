"""The newest report of each cluster's scheduler: its program reports once a minute, to any server."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.answers import SchedulerStatus
from jobmeter.model.record import SchedulerRecord, record_time
from jobmeter.model.time import DAY, MINUTE, format_iso, parse_time
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import schedulers
from jobmeter.registry.statements import insert

MOST, MOST_OF_PROJECT = 1_000, 64
"""Most schedulers, in all and of one project; the least recently reported are dropped."""
FORGOTTEN_MS = 7 * DAY
"""Age in milliseconds of the last report at which a scheduler is forgotten."""
_SILENT_MS = 10 * MINUTE
_SILENT_INTERVALS = 3
"""A program is silent after ten minutes without a report, and after three of its intervals (five minutes at most)."""
_KEY = tuple(schedulers.primary_key)


def make_scheduler_row(project: str, record: SchedulerRecord, now_ms: int) -> Mapping[str, Any]:
    """Return the row of a report. Raises InvalidRequestError naming the field."""
    heard = min(parse_time(record.time, "schedulers.time"), now_ms)
    since = record_time(record.since, "schedulers.since")
    return msgspec.structs.asdict(record) | {"project": project, "heard": heard, "since": since}


class SchedulerTable:
    """The reports of schedulers. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, project: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store reports of a project, unless a newer one is stored."""
        with self._database.write(SHORT_SECONDS, key=project) as connection:
            statement = insert(connection, schedulers)
            new = statement.excluded
            changes = {column.name: new[column.name] for column in schedulers.columns if not column.primary_key}
            newest = statement.on_conflict_do_update(
                index_elements=_KEY, set_=changes, where=new.heard >= schedulers.c.heard
            )
            names = [column.name for column in schedulers.columns]
            for row in rows:  # one by one: a request may report a scheduler twice
                connection.execute(newest, {name: row[name] for name in names})
            _drop_oldest(connection, MOST_OF_PROJECT, schedulers.c.project == project)
            _drop_oldest(connection, MOST, sa.true())

    def list_states(self, now_ms: int) -> list[SchedulerStatus]:
        """Return the state of each scheduler, by project, cluster and kind."""
        recent = sa.select(schedulers).where(schedulers.c.heard > now_ms - FORGOTTEN_MS).order_by(*_KEY)
        with self._database.read(SHORT_SECONDS) as connection:
            found = [msgspec.convert(row, SchedulerStatus, from_attributes=True) for row in connection.execute(recent)]
        return [_note_silence(state, now_ms) for state in found]


def _drop_oldest(connection: sa.Connection, most: int, which: sa.ColumnElement[bool]) -> None:
    older = sa.select(*_KEY).where(which).order_by(schedulers.c.heard.desc()).offset(most)
    for row in connection.execute(older).all():
        connection.execute(
            sa.delete(schedulers).where(*(column == value for column, value in zip(_KEY, row, strict=True)))
        )


def _note_silence(state: SchedulerStatus, now_ms: int) -> SchedulerStatus:
    if now_ms - state.heard < max(_SILENT_MS, _SILENT_INTERVALS * state.interval_ms):
        return state
    text = f"`jobmeter scheduler {state.kind}` has sent no report since {format_iso(state.heard)}: check that it runs"
    return msgspec.structs.replace(state, problem=text, since=state.heard)
