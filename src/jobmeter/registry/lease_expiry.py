"""Leases of runs: renews them, and marks jobs lost whose leases have expired.

A run that was cut off and returns continues its job. Both changes of state are events.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.job import LOST, JobState
from jobmeter.model.record import LeaseRecord
from jobmeter.model.time import SECOND, format_iso
from jobmeter.registry.events import make_state_row
from jobmeter.registry.schema import jobs, replicas

MOST = 200
"""Most jobs that one transaction marks."""

_job, _replica = jobs.c, replicas.c
_RUNNING, _FAILED = JobState.RUNNING.value, JobState.FAILED.value


class StateChanges(msgspec.Struct):
    """The jobs, (project, id), whose state a transaction changed, and the events of those changes."""

    jobs: list[tuple[str, str]] = msgspec.field(default_factory=list)
    events: list[dict[str, Any]] = msgspec.field(default_factory=list)


def read_lease(connection: sa.Connection, project: str, job: str) -> tuple[int, str] | None:
    """Return the end of a job's lease and its owner; None without a lease."""
    question = sa.select(_job.lease_renewed + _job.lease_ms, _job.lease_owner).where(_job.project == project)
    row = connection.execute(question.where(_job.id == job, _job.lease_renewed.is_not(None))).one_or_none()
    return None if row is None else (row[0], row[1])


def renew(connection: sa.Connection, project: str, renewals: Iterable[LeaseRecord], now_ms: int) -> StateChanges:
    """Renew leases; a lost job runs again. A no-op if another run has the lease, or if the job has ended."""
    found = StateChanges()
    for renewal in sorted(renewals, key=lambda one: one.job_id):
        lease = renewal.lease
        given = {"lease_owner": lease.owner, "lease_ms": lease.seconds * SECOND, "lease_renewed": now_ms}
        own = sa.and_(_job.project == project, _job.id == renewal.job_id)
        free = sa.or_(
            _job.lease_owner.in_(["", lease.owner]),
            _job.lease_renewed.is_(None),
            _job.lease_renewed + _job.lease_ms <= now_ms,
        )
        renewed = sa.update(jobs).where(own, _job.state == _RUNNING, free).values(given)
        if connection.execute(renewed).rowcount:
            continue
        again = {"state": _RUNNING, "end": None, "error": "", "lost": None, "updated": now_ms}
        lost = (_job.lost.is_not(None), _job.lease_owner.in_(["", lease.owner]))
        if connection.execute(sa.update(jobs).where(own, *lost).values({**given, **again})).rowcount:
            _resume(connection, project, renewal.job_id, now_ms, found)
    return found


def mark_lost(connection: sa.Connection, now_ms: int, heard_since_ms: int, least_ms: int) -> StateChanges:
    """Mark jobs lost whose leases have expired, at most ``MOST``."""
    least, heard = (sa.literal(value, sa.BigInteger) for value in (least_ms, now_ms - heard_since_ms))
    length = sa.case((_job.lease_ms < least, least), else_=_job.lease_ms)
    over = (_job.lease_renewed + length <= now_ms, length <= heard)
    columns = (_job.project, _job.id, _job.start, _job.last_sample, _job.lease_renewed)
    question = sa.select(*columns).where(_job.lease_renewed.is_not(None), _job.state == _RUNNING, *over)
    question = question.order_by(_job.project, _job.id).limit(MOST).with_for_update()
    found = StateChanges()
    for row in connection.execute(question).all():
        end = _find_last_heard(row.start, row.last_sample, row.lease_renewed)
        own = sa.and_(_job.project == row.project, _job.id == row.id)
        values = {"state": _FAILED, "end": end, "error": LOST, "lost": now_ms, "lease_ms": None, "lease_renewed": None}
        connection.execute(sa.update(jobs).where(own).values({**values, "updated": now_ms}))
        message = f"{LOST}: its lease was renewed last at {format_iso(row.lease_renewed)}"
        found.jobs.append((row.project, row.id))
        found.events.append(make_state_row(row.project, row.id, JobState.FAILED, now_ms, message))
        _lose_replicas(connection, (row.project, row.id), row.lease_renewed, now_ms, found)
    return found


def _lose_replicas(
    connection: sa.Connection, job: tuple[str, str], renewed: int, now_ms: int, found: StateChanges
) -> None:
    for row in _members(connection, *job, _replica.state == _RUNNING):
        end = _find_last_heard(row.start, row.last_sample, renewed)
        _set(connection, row, {"state": _FAILED, "end": end, "reason": LOST})
        found.events.append(_event(row, JobState.FAILED, now_ms, LOST))


def _resume(connection: sa.Connection, project: str, job: str, now_ms: int, found: StateChanges) -> None:
    message = "The run renewed its lease again: the job was not lost."
    found.jobs.append((project, job))
    found.events.append(make_state_row(project, job, JobState.RUNNING, now_ms, message))
    for row in _members(connection, project, job, sa.and_(_replica.state == _FAILED, _replica.reason == LOST)):
        _set(connection, row, {"state": _RUNNING, "end": None, "reason": ""})
        found.events.append(_event(row, JobState.RUNNING, now_ms, message))


def _members(
    connection: sa.Connection, project: str, job: str, condition: sa.ColumnElement[bool]
) -> Sequence[sa.Row[Any]]:
    question = sa.select(replicas).where(_replica.project == project, _replica.job == job, condition)
    return connection.execute(question.order_by(_replica.name, _replica.attempt)).all()


def _set(connection: sa.Connection, row: sa.Row[Any], values: dict[str, Any]) -> None:
    key = (_replica.project == row.project, _replica.job == row.job)
    one = (_replica.name == row.name, _replica.attempt == row.attempt)
    connection.execute(sa.update(replicas).where(*key, *one).values(values))


def _event(row: sa.Row[Any], state: JobState, now_ms: int, message: str) -> dict[str, Any]:
    names = {"attempt": row.attempt, "cluster": row.cluster, "node": row.node}
    return make_state_row(row.project, row.job, state, now_ms, message, replica=row.name, **names)


def _find_last_heard(start: int | None, last_sample: int | None, renewed: int) -> int:
    """Return the last time at which a job ran: its last sample, else its last renewal, but not before its start."""
    return max(renewed if last_sample is None else last_sample, 0 if start is None else start)
