"""Reads one job, with or without its replicas and allocations, and deletes it."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import Allocation, Job, JobView
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.registry.events import forget_events
from jobmeter.registry.memory import Expiring
from jobmeter.registry.rows import compute_valid_until, make_allocation, make_job, make_replica
from jobmeter.registry.schema import SAMPLED, allocations, jobs, replicas
from jobmeter.registry.statements import match_names


def prepare(connection: sa.Connection) -> None:
    """Read a job that does not exist: the first use of a statement takes longer than a request may."""
    for names in (None, frozenset({""})):
        read_job_rows(connection, names, "")
    connection.execute(_parts(replicas, "", "")).all()
    connection.execute(_allocations("", "")).all()


def read_job_rows(connection: sa.Connection, names: frozenset[str] | None, job: str) -> Sequence[sa.Row[Any]]:
    """Return the rows of every job of that id in those projects (None: all), by project."""
    question = sa.select(jobs).where(jobs.c.id == job, match_names(jobs.c.project, names))
    return connection.execute(question.order_by(jobs.c.project)).all()


def read_job_heads(
    connection: sa.Connection, names: frozenset[str] | None, job: str, now_ms: int
) -> Expiring[list[Job]]:
    """Return every job of that id, without replicas and allocations, with the time until which it is valid."""
    rows = read_job_rows(connection, names, job)
    until = min((compute_valid_until(row.status, row.last_sample, now_ms) for row in rows), default=MAX_TIME_MS)
    return Expiring([make_job(row, now_ms) for row in rows], now_ms, until, len(rows) + 1)


def read_job_views(
    connection: sa.Connection, names: frozenset[str] | None, job: str, now_ms: int
) -> Expiring[list[JobView]]:
    """Return every job of that id with replicas and allocations, with the time until which it is valid."""
    heads = read_job_heads(connection, names, job, now_ms)
    views = [_view(connection, head, now_ms) for head in heads.answer]
    parts = heads.parts + sum(len(one.answer.replicas) + len(one.answer.allocations) for one in views)
    return Expiring(
        [one.answer for one in views], now_ms, min([heads.until_ms, *(one.until_ms for one in views)]), parts
    )


def read_job_allocations(connection: sa.Connection, head: Job) -> list[Allocation]:
    """Return the allocations of one job, by start."""
    return [make_allocation(row, head) for row in connection.execute(_allocations(head.project, head.id))]


def forget_job(connection: sa.Connection, project: str, job: str) -> bool:
    """Delete a job with its replicas, allocations and events. Return False if there was no record."""
    forget_events(connection, project, job)
    return connection.execute(sa.delete(jobs).where(jobs.c.project == project, jobs.c.id == job)).rowcount > 0


def _view(connection: sa.Connection, head: Job, now_ms: int) -> Expiring[JobView]:
    rows = connection.execute(_parts(replicas, head.project, head.id)).all()
    members = [make_replica(row, head, now_ms) for row in rows]
    members.sort(key=lambda member: (make_natural_key(member.name), member.attempt))
    until = min((compute_valid_until(SAMPLED, row.last_sample, now_ms) for row in rows), default=MAX_TIME_MS)
    view = JobView(job=head, replicas=members, allocations=read_job_allocations(connection, head))
    return Expiring(view, now_ms, MAX_TIME_MS if head.recorded else until)


def _parts(table: sa.Table, project: str, job: str) -> sa.Select[Any]:
    return sa.select(table).where(table.c.project == project, table.c.job == job)


def _allocations(project: str, job: str) -> sa.Select[Any]:
    return (
        _parts(allocations, project, job)
        .order_by(allocations.c.start, allocations.c.replica, allocations.c.node, allocations.c.device)
        .order_by(allocations.c.id)
    )
