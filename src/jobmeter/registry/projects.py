"""Lists the projects, each with its newest job."""

import sqlalchemy as sa

from jobmeter.model.job import Project
from jobmeter.registry.rows import job_of
from jobmeter.registry.schema import jobs, projects
from jobmeter.registry.statements import within


def list_projects(connection: sa.Connection, names: frozenset[str] | None, now_ms: int) -> list[Project]:
    """Return the projects with these names (None: all), sorted."""
    question = sa.select(projects.c.name).where(within(projects.c.name, names)).order_by(projects.c.name)
    return [_project(connection, name, now_ms) for name in connection.scalars(question).all()]


def _project(connection: sa.Connection, name: str, now_ms: int) -> Project:
    # Both ends of one index: no listing, and no count of jobs.
    order = (jobs.c.created_sort, jobs.c.id)
    newest = sa.select(jobs).where(jobs.c.project == name).order_by(*(column.desc() for column in order)).limit(1)
    oldest = sa.select(jobs.c.created_sort).where(jobs.c.project == name).order_by(*order).limit(1)
    row = connection.execute(newest).first()
    latest = None if row is None else job_of(row, now_ms)
    return Project(name=name, created=connection.scalar(oldest), latest=latest)
