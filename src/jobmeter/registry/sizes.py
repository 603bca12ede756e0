"""Sizes of many jobs, counted by the database because a listing needs no names of replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import JobSize
from jobmeter.registry.schema import allocations, replicas
from jobmeter.registry.statements import job_chunks


def job_sizes(connection: sa.Connection, jobs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobSize]:
    """Return the number of replicas and GPUs of each job."""
    found: dict[tuple[str, str], JobSize] = {}
    for project, ids in job_chunks(jobs):
        members = _counted(connection, _replicas(project, ids))
        gpus = _counted(connection, _gpus(project, ids))
        found |= {(project, job): JobSize(replicas=members.get(job, 0), gpus=gpus.get(job, 0)) for job in ids}
    return found


def _counted(connection: sa.Connection, question: sa.Select[Any]) -> Mapping[str, int]:
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
