"""Events in the database: kept once each, bounded by job, listed by time."""

import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Event, EventFilter, EventPage, EventSource, Level
from jobmeter.model.job import JobState
from jobmeter.model.record import EventRecord
from jobmeter.model.time import parse_time
from jobmeter.registry.functions import clean, contains_folded
from jobmeter.registry.schema import events, jobs
from jobmeter.registry.statements import chunks, insert

MAX_EVENTS = 100_000
"""Most events of a job; the oldest give way."""

_log = logging.getLogger("jobmeter.registry")
_column = events.c
_NAMES = ("project", "job", "replica", "attempt", "cluster", "node", "source", "reason", "message", "time")
_LEVELS = {JobState.FAILED: Level.ERROR, JobState.STOPPED: Level.WARNING}


def event_row(project: str, record: EventRecord) -> dict[str, Any]:
    """The row that a checked event means."""
    return _row(
        project=project,
        job=record.job,
        replica=record.replica,
        attempt=record.attempt,
        cluster=record.cluster,
        node=record.node,
        source=record.source.value,
        level=record.level.value,
        reason=clean(record.reason),
        message=clean(record.message),
        time=parse_time(record.time, "events.time"),
    )


def state_row(
    project: str, job: str, state: JobState, time_ms: int, message: str = "", **replica: object
) -> dict[str, Any]:
    """The row of an event of source ``state``; ``replica`` names the replica, its attempt, cluster and node, if any."""
    return _row(
        **{"replica": "", "attempt": 0, "cluster": "", "node": "", **replica},
        project=project,
        job=job,
        source=EventSource.STATE.value,
        level=_LEVELS.get(state, Level.INFO).value,
        reason=state.value,
        message=message,
        time=time_ms,
    )


def add_events(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> int:
    """Keep the events that are not there yet; gives how many old ones had to go from jobs that have too many."""
    if not rows:
        return 0
    connection.execute(insert(connection, events).on_conflict_do_nothing(index_elements=["digest"]), list(rows))
    touched = sorted({(row["job"], row["project"]) for row in rows if row["job"]})
    full = _overfull(connection, sorted({job for job, _ in touched}))
    return sum(_trim(connection, project, job) for job, project in touched if job in full)


def list_events(connection: sa.Connection, question: EventFilter) -> EventPage:
    """See ``Registry.events``. Raises InvalidRequestError for a negative page."""
    for field in ("offset", "limit"):
        if not 0 <= getattr(question, field) < 2**31:
            raise InvalidRequestError(f"{field} must be from 0 to 2147483647", field)
    wanted = list(_wanted(question))
    total = connection.scalar(sa.select(sa.func.count()).select_from(events).where(*wanted)) or 0
    if question.offset >= total or not question.limit:
        return EventPage([], total)
    order = (_column.time.desc(), _column.id.desc()) if question.descending else (_column.time, _column.id)
    page = sa.select(events).where(*wanted).order_by(*order).limit(question.limit).offset(question.offset)
    return EventPage([_event(row) for row in connection.execute(page)], total)


def forget_events(connection: sa.Connection, project: str, job: str) -> None:
    """Delete the events of a job."""
    connection.execute(sa.delete(events).where(_column.job == job, _column.project == project))


def outlived(connection: sa.Connection, project: str, before_ms: int) -> list[str]:
    """Whose events from before that time nothing keeps: the empty name for nodes', and jobs that there are not."""
    known = sa.exists().where(jobs.c.project == _column.project, jobs.c.id == _column.job)
    question = sa.select(_column.job).distinct().where(_column.project == project, _column.time < before_ms, ~known)
    return list(connection.scalars(question))


def delete_outlived(connection: sa.Connection, project: str, names: Sequence[str], before_ms: int) -> int:
    """Delete what ``outlived`` found; gives the number of events."""
    deleted = 0
    known = sa.exists().where(jobs.c.project == project, jobs.c.id == _column.job)
    for some in chunks(names):
        statement = sa.delete(events).where(_column.job.in_(some), _column.project == project, ~known)
        deleted += connection.execute(statement.where(_column.time < before_ms)).rowcount
    return deleted


def _row(**values: object) -> dict[str, Any]:
    known = msgspec.json.encode([values[name] for name in _NAMES])
    return {**values, "digest": blake2b(known, digest_size=16).digest()}


def _overfull(connection: sa.Connection, names: Sequence[str]) -> set[str]:
    """Those of the jobs that may have too many events: the projects of one id are counted together."""
    found: set[str] = set()
    for some in chunks(names):
        held = sa.select(_column.job).where(_column.job.in_(some)).group_by(_column.job)
        found.update(connection.scalars(held.having(sa.func.count() > MAX_EVENTS)))
    return found


def _trim(connection: sa.Connection, project: str, job: str) -> int:
    own = (_column.job == job, _column.project == project)
    oldest = sa.select(_column.time, _column.id).where(*own).order_by(_column.time.desc(), _column.id.desc())
    row = connection.execute(oldest.offset(MAX_EVENTS).limit(1)).one_or_none()
    if row is None:
        return 0
    before = sa.or_(_column.time < row.time, sa.and_(_column.time == row.time, _column.id <= row.id))
    dropped = connection.execute(sa.delete(events).where(*own, before)).rowcount
    _log.warning("job %s of project %s has more than %d events: the oldest %d went", job, project, MAX_EVENTS, dropped)
    return dropped


def _wanted(question: EventFilter) -> Iterable[sa.ColumnElement[bool]]:
    for column, values in (
        (_column.project, question.projects),
        (_column.job, question.jobs or None),
        (_column.replica, question.replicas or None),
        (_column.node, question.nodes or None),
        (_column.cluster, question.clusters or None),
        (_column.source, question.sources or None),
        (_column.level, question.levels or None),
    ):
        if values is not None:
            yield column.in_([clean(value) for value in sorted(values)])
    if question.start is not None:
        yield _column.time >= _within(question.start)
    if question.end is not None:
        yield _column.time < _within(question.end)
    if question.contains:
        yield contains_folded(_column.reason + "\n" + _column.message, question.contains)


def _within(time_ms: int) -> int:
    return max(-(2**63), min(time_ms, 2**63 - 1))


def _event(row: sa.Row[Any]) -> Event:
    return Event(
        time=row.time,
        project=row.project,
        job=row.job,
        replica=row.replica,
        attempt=row.attempt,
        cluster=row.cluster,
        node=row.node,
        source=EventSource(row.source),
        level=Level(row.level),
        reason=row.reason,
        message=row.message,
    )
