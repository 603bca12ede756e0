"""Sizes of many jobs, counted by the database because a listing needs no names of replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import JobSize
from jobmeter.registry.schema import allocations, replicas
from jobmeter.registry.statements import iterate_job_chunks

_PLACES = {
    "devices": (allocations.c.cluster, allocations.c.node, allocations.c.device),
    "nodes": (replicas.c.cluster, replicas.c.node),
}
"""The columns that identify each kind of place."""


def read_job_sizes(
    connection: sa.Connection, jobs: Iterable[tuple[str, str]], *, places: bool = False
) -> dict[tuple[str, str], JobSize]:
    """Return the number of replicas and GPUs of each job; with ``places`` also of its devices and nodes."""
    found: dict[tuple[str, str], JobSize] = {}
    for project, ids in iterate_job_chunks(jobs):
        statements = {"replicas": _replicas(project, ids), "gpus": _gpus(project, ids)}
        if places:
            statements |= {name: _select_distinct(columns, project, ids) for name, columns in _PLACES.items()}
        counts = {name: _count_by_job(connection, one) for name, one in statements.items()}
        found |= {(project, job): JobSize(**{name: by.get(job, 0) for name, by in counts.items()}) for job in ids}
    return found


def _count_by_job(connection: sa.Connection, question: sa.Select[Any]) -> Mapping[str, int]:
    return {str(job): int(number) for job, number in connection.execute(question)}


def _replicas(project: str, jobs: Sequence[str]) -> sa.Select[Any]:
    one = replicas.c
    return (
        sa.select(one.job, sa.func.count(sa.distinct(one.name)))
        .where(one.project == project, one.job.in_(jobs))
        .group_by(one.job)
    )


def _gpus(project: str, jobs: Sequence[str]) -> sa.Select[Any]:
    one = allocations.c
    by_node = (
        sa.select(one.job, sa.func.count(sa.distinct(one.device)).label("number"))
        .where(one.project == project, one.job.in_(jobs), one.device.startswith("gpu"))
        .group_by(one.job, one.replica, one.cluster, one.node)
        .subquery()
    )
    return sa.select(by_node.c.job, sa.func.max(by_node.c.number)).group_by(by_node.c.job)


def _select_distinct(columns: Sequence[sa.Column[Any]], project: str, jobs: Sequence[str]) -> sa.Select[Any]:
    one, name = columns[-1].table.c, columns[-1]
    places = (
        sa.select(one.job, *columns).where(one.project == project, one.job.in_(jobs), name != "").distinct().subquery()
    )
    return sa.select(places.c.job, sa.func.count()).group_by(places.c.job)
