"""The types of events as conditions on their rows: a type is not stored, it follows from source and reason."""

import sqlalchemy as sa

from jobmeter.model.event import ENDS, REASONS, SERVER_REASONS, EventSource, EventType
from jobmeter.model.job import JobState
from jobmeter.registry.schema import events

_column = events.c
_STATE = _column.source == EventSource.STATE.value
_SERVER = _column.source == EventSource.SERVER.value
_REPLICA = _column.replica != ""
_RUNS = _column.reason == JobState.RUNNING.value


def of_type(kind: EventType) -> sa.ColumnElement[bool]:
    """The condition that an event is of that type; see ``Event.type``."""
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
            return sa.not_(sa.or_(*(of_type(other) for other in others)))
        case _ if kind in SERVER_REASONS:
            return sa.and_(_SERVER, _column.reason.in_(sorted(SERVER_REASONS[kind])))
        case _:
            return sa.and_(~_STATE, _column.reason.in_(sorted(REASONS[kind])))
