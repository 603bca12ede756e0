"""Reads jobs with their replicas and allocations, in three queries for some hundred jobs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import JobView
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import TimeRange
from jobmeter.registry.rows import make_allocation, make_job, make_replica
from jobmeter.registry.schema import allocations, jobs, replicas
from jobmeter.registry.statements import iterate_job_chunks

_Key = tuple[str, str]


def iterate_views(connection: sa.Connection, keys: Iterable[_Key], span: TimeRange, now_ms: int) -> Iterator[JobView]:
    """Yield jobs with their replicas and the allocations that overlap the span, by project and id."""
    for project, ids in iterate_job_chunks(sorted(keys)):
        yield from _views(connection, (jobs.c.project == project, jobs.c.id.in_(ids)), span, now_ms)


def _views(
    connection: sa.Connection, conditions: Sequence[sa.ColumnElement[bool]], span: TimeRange, now_ms: int
) -> list[JobView]:
    heads = [make_job(row, now_ms) for row in connection.execute(sa.select(jobs).where(*conditions))]
    places = {(head.project, head.id): head for head in heads}
    members = _group_by_job(connection.execute(_parts(replicas, conditions)))
    met = (
        allocations.c.start < span.end_ms,
        sa.or_(allocations.c.end.is_(None), allocations.c.end >= span.start_ms),
    )
    allocated = _group_by_job(
        connection.execute(_parts(allocations, (*conditions, *met)).order_by(allocations.c.start))
    )
    return [
        JobView(
            job=head,
            replicas=sorted(
                (make_replica(row, head, now_ms) for row in members[key]),
                key=lambda member: (make_natural_key(member.name), member.attempt),
            ),
            allocations=[make_allocation(row, head) for row in allocated[key]],
        )
        for key, head in sorted(places.items())
    ]


def _parts(table: sa.Table, conditions: Iterable[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    joined = sa.and_(table.c.project == jobs.c.project, table.c.job == jobs.c.id)
    return sa.select(table).join(jobs, joined).where(*conditions)


def _group_by_job(rows: Iterable[sa.Row[Any]]) -> dict[_Key, list[sa.Row[Any]]]:
    found: dict[_Key, list[sa.Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.project, row.job].append(row)
    return found
