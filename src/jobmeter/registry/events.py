"""Events in the database: stored once each, bounded by job, listed by time."""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import (
    ENDS,
    REASONS,
    SERVER_REASONS,
    Event,
    EventFilter,
    EventPage,
    EventSource,
    EventType,
    Level,
)
from jobmeter.model.job import JobState
from jobmeter.model.record import EventRecord
from jobmeter.model.time import clamp_to_int64, parse_time
from jobmeter.registry.schema import events, jobs
from jobmeter.registry.statements import clean_text, insert, iterate_chunks, match_names

MAX_EVENTS = 100_000
"""Most events of a job; the oldest are deleted."""

_CHUNK = 2000
_log = logging.getLogger("jobmeter.registry")
_column = events.c
# A type is not stored: it follows from source and reason.
_STATE = _column.source == EventSource.STATE.value
_SERVER = _column.source == EventSource.SERVER.value
_REPLICA = _column.replica != ""
_RUNS = _column.reason == JobState.RUNNING.value
_ID = re.compile(r"[0-9a-f]{32}")
_LEVELS = {JobState.FAILED: Level.ERROR, JobState.STOPPED: Level.WARNING}


def make_event_row(project: str, record: EventRecord) -> dict[str, Any]:
    """Return the row of a checked event record."""
    fields = msgspec.structs.asdict(record) | {"project": project, "time": parse_time(record.time, "events.time")}
    return make_row(Event(**fields))


def make_row(event: Event) -> dict[str, Any]:
    """Return the row of an event."""
    words = {name: clean_text(getattr(event, name)) for name in ("reason", "message", "subject", "actor")}
    cleaned = msgspec.structs.replace(event, **words)
    values = msgspec.structs.asdict(cleaned)
    return {**values, "source": event.source.value, "level": event.level.value, "digest": cleaned.digest}


def make_state_row(
    project: str, job: str, state: JobState, time_ms: int, message: str = "", **replica: object
) -> dict[str, Any]:
    """Return the row of an event of source ``state``; ``replica`` names the replica, its attempt, cluster and node."""
    common: dict[str, Any] = {"project": project, "job": job, "time": time_ms, "message": message, **replica}
    return make_row(Event(source=EventSource.STATE, level=_LEVELS.get(state, Level.INFO), reason=state.value, **common))


def add_events(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> int:
    """Store events, each once. Return the number of old events deleted from jobs that had too many."""
    if not rows:
        return 0
    connection.execute(insert(connection, events).on_conflict_do_nothing(index_elements=["digest"]), list(rows))
    affected = sorted({(row["job"], row["project"]) for row in rows if row["job"]})
    full = _find_overfull(connection, sorted({job for job, _ in affected}))
    return sum(_trim(connection, project, job) for job, project in affected if job in full)


def list_events(connection: sa.Connection, question: EventFilter) -> EventPage:
    """Return a page of events. Raises InvalidRequestError for a negative page."""
    for field in ("offset", "limit"):
        if not 0 <= getattr(question, field) < 2**31:
            raise InvalidRequestError(f"{field} must be from 0 to 2147483647", field)
    conditions = list(_conditions(question))
    if question.contains:
        return _search(connection, question, conditions)
    total = connection.scalar(sa.select(sa.func.count()).select_from(events).where(*conditions)) or 0
    if question.offset >= total or not question.limit:
        return EventPage([], total)
    if question.after:
        conditions.append(_select_after(connection, question))
    page = sa.select(events).where(*conditions).order_by(*_order(question))
    rows = connection.execute(page.limit(question.limit).offset(question.offset))
    return EventPage([_event(row) for row in rows], total)


def _search(
    connection: sa.Connection, question: EventFilter, conditions: Sequence[sa.ColumnElement[bool]]
) -> EventPage:
    """Return a page of the events that contain the text.

    Databases fold letters differently, so the events are read and searched here.
    """
    part = clean_text(question.contains).casefold()
    behind = _select_after(connection, question) if question.after else sa.true()
    columns = (_column.id, _column.reason, _column.message, behind.label("behind"))
    everything = sa.select(*columns).where(*conditions).order_by(*_order(question))
    total, found = 0, []
    for one, reason, message, after in connection.execute(everything, execution_options={"yield_per": _CHUNK}):
        if part in f"{reason}\n{message}".casefold():
            total += 1
            if after:
                found.append(one)
    ids = found[question.offset : question.offset + question.limit]
    rows = {
        row.id: row
        for some in iterate_chunks(ids)
        for row in connection.execute(sa.select(events).where(_column.id.in_(some)))
    }
    return EventPage([_event(rows[one]) for one in ids if one in rows], total)


def _order(question: EventFilter) -> Sequence[sa.ColumnElement[Any]]:
    return (_column.time.desc(), _column.id.desc()) if question.descending else (_column.time, _column.id)


def forget_events(connection: sa.Connection, project: str, job: str) -> None:
    """Delete the events of a job."""
    connection.execute(sa.delete(events).where(_column.job == job, _column.project == project))


def find_outlived(connection: sa.Connection, project: str, before_ms: int) -> list[str]:
    """Return the owners whose events before that time may be deleted.

    The empty name stands for nodes; the others are jobs that do not exist.
    """
    has_job = sa.exists().where(jobs.c.project == _column.project, jobs.c.id == _column.job)
    question = sa.select(_column.job).distinct().where(_column.project == project, _column.time < before_ms, ~has_job)
    return list(connection.scalars(question))


def delete_outlived(connection: sa.Connection, project: str, names: Sequence[str], before_ms: int) -> int:
    """Delete the events of these owners before a time. Return the number of events."""
    deleted = 0
    has_job = sa.exists().where(jobs.c.project == project, jobs.c.id == _column.job)
    for some in iterate_chunks(names):
        statement = sa.delete(events).where(_column.job.in_(some), _column.project == project, ~has_job)
        deleted += connection.execute(statement.where(_column.time < before_ms)).rowcount
    return deleted


def _find_overfull(connection: sa.Connection, names: Sequence[str]) -> set[str]:
    """Return the jobs that may have too many events. The projects of one id are counted together."""
    found: set[str] = set()
    for some in iterate_chunks(names):
        crowded = sa.select(_column.job).where(_column.job.in_(some)).group_by(_column.job)
        found.update(connection.scalars(crowded.having(sa.func.count() > MAX_EVENTS)))
    return found


def _trim(connection: sa.Connection, project: str, job: str) -> int:
    own = (_column.job == job, _column.project == project)
    oldest = sa.select(_column.time, _column.id).where(*own).order_by(_column.time.desc(), _column.id.desc())
    row = connection.execute(oldest.offset(MAX_EVENTS).limit(1)).one_or_none()
    if row is None:
        return 0
    before = sa.or_(_column.time < row.time, sa.and_(_column.time == row.time, _column.id <= row.id))
    dropped = connection.execute(sa.delete(events).where(*own, before)).rowcount
    _log.warning(
        "job %s of project %s has more than %d events: the oldest %d were deleted", job, project, MAX_EVENTS, dropped
    )
    return dropped


def _conditions(question: EventFilter) -> Iterable[sa.ColumnElement[bool]]:
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
            yield column.in_([clean_text(value) for value in sorted(values)])
    if question.types:
        yield sa.or_(*(_select_type(kind) for kind in sorted(question.types)))
    if question.without:
        yield sa.not_(sa.or_(*(_select_type(kind) for kind in sorted(question.without))))
    if question.ids:
        yield _column.digest.in_([_digest(one, "ids") for one in question.ids])
    if question.start is not None:
        yield _column.time >= clamp_to_int64(question.start)
    if question.end is not None:
        yield _column.time < clamp_to_int64(question.end)


def _select_after(connection: sa.Connection, question: EventFilter) -> sa.ColumnElement[bool]:
    """Return the condition for events behind the event ``after``. Raises InvalidRequestError if it does not exist."""
    place = sa.select(_column.time, _column.id).where(_column.digest == _digest(question.after, "after"))
    row = connection.execute(place.where(match_names(_column.project, question.projects))).one_or_none()
    if row is None:
        raise InvalidRequestError("the event of this id no longer exists: start from the first page", "after")
    last, one = sa.tuple_(_column.time, _column.id), sa.tuple_(sa.literal(row.time), sa.literal(row.id))
    return last < one if question.descending else last > one


def _digest(event_id: str, field: str) -> bytes:
    if not _ID.fullmatch(event_id):
        raise InvalidRequestError(f"{event_id[:64]!r} is not the id of an event", field)
    return bytes.fromhex(event_id)


def _event(row: sa.Row[Any]) -> Event:
    return msgspec.convert(row, Event, from_attributes=True)


def _select_type(kind: EventType) -> sa.ColumnElement[bool]:
    """Return the condition for events of that type; see ``Event.type``."""
    match kind:
        case EventType.JOB_STATE:
            return sa.and_(_STATE, ~_REPLICA)
        case EventType.REPLICA_START:
            return sa.and_(_STATE, _REPLICA, _RUNS)
        case EventType.REPLICA_END:
            return sa.and_(_STATE, _REPLICA, _column.reason.in_(sorted(ENDS)))
        case EventType.REPLICA_STATE:
            return sa.and_(_STATE, _REPLICA, ~_RUNS, _column.reason.not_in(sorted(ENDS)))
        case EventType.OTHER:
            others = (other for other in EventType if other is not EventType.OTHER)
            return sa.not_(sa.or_(*(_select_type(other) for other in others)))
        case _ if kind in SERVER_REASONS:
            return sa.and_(_SERVER, _column.reason.in_(sorted(SERVER_REASONS[kind])))
        case _:
            return sa.and_(~_STATE, _column.reason.in_(sorted(REASONS[kind])))
