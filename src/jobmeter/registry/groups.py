"""Every job of a resource group that was there in a range, whole: three questions, however many jobs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import JobView
from jobmeter.model.order import natural
from jobmeter.model.time import TimeRange
from jobmeter.registry.rows import ALIVE_MS, allocation_of, job_of, replica_of
from jobmeter.registry.schema import SAMPLED, allocations, jobs, projects, replicas
from jobmeter.registry.statements import chunks

_Key = tuple[str, str]


def group_views(
    connection: sa.Connection, names: frozenset[str] | None, group: str, span: TimeRange, now_ms: int
) -> list[JobView]:
    """See ``Registry.group_jobs``."""
    return _views(connection, _conditions(names, group, span), span, now_ms)


def views_of(connection: sa.Connection, keys: Iterable[_Key], span: TimeRange, now_ms: int) -> list[JobView]:
    """As ``group_views``, for the jobs of those keys."""
    ids: dict[str, list[str]] = defaultdict(list)
    for project, job in keys:
        ids[project].append(job)
    return [
        view
        for project in sorted(ids)
        for some in chunks(sorted(ids[project]))
        for view in _views(connection, (jobs.c.project == project, jobs.c.id.in_(some)), span, now_ms)
    ]


def _views(
    connection: sa.Connection, conditions: Sequence[sa.ColumnElement[bool]], span: TimeRange, now_ms: int
) -> list[JobView]:
    heads = [job_of(row, now_ms) for row in connection.execute(sa.select(jobs).where(*conditions))]
    places = {(head.project, head.id): head for head in heads}
    members = _by_job(connection.execute(_parts(replicas, conditions)))
    met = (
        allocations.c.start < span.end_ms,
        sa.or_(allocations.c.end.is_(None), allocations.c.end >= span.start_ms),
    )
    held = _by_job(connection.execute(_parts(allocations, (*conditions, *met)).order_by(allocations.c.start)))
    return [
        JobView(
            job=head,
            replicas=sorted(
                (replica_of(row, head, now_ms) for row in members[key]),
                key=lambda member: (natural(member.name), member.attempt),
            ),
            allocations=[allocation_of(row, head) for row in held[key]],
        )
        for key, head in sorted(places.items())
    ]


def _conditions(names: frozenset[str] | None, group: str, span: TimeRange) -> Sequence[sa.ColumnElement[bool]]:
    # The index begins with the project, so that one is always named.
    inside = sa.select(projects.c.name) if names is None else sorted(names)
    # Between two samples a job lives on.
    sampled = sa.and_(jobs.c.status == SAMPLED, jobs.c.end_sort >= span.start_ms - ALIVE_MS)
    return (
        jobs.c.project.in_(inside),
        jobs.c.resource_group == group,
        jobs.c.start_sort < span.end_ms,
        sa.or_(jobs.c.end_sort == -1, jobs.c.end_sort >= span.start_ms, sampled),
    )


def _parts(table: sa.Table, conditions: Iterable[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    joined = sa.and_(table.c.project == jobs.c.project, table.c.job == jobs.c.id)
    return sa.select(table).join(jobs, joined).where(*conditions)


def _by_job(rows: Iterable[sa.Row[Any]]) -> dict[_Key, list[sa.Row[Any]]]:
    found: dict[_Key, list[sa.Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.project, row.job].append(row)
    return found
