"""Nodes, and projects with their retention and their newest job."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.job import Node, Project
from jobmeter.model.record import NodeRecord
from jobmeter.model.retention import Retention
from jobmeter.registry.node_liveness import make_node_events
from jobmeter.registry.rows import make_job, make_node, make_node_values
from jobmeter.registry.schema import jobs, nodes, projects
from jobmeter.registry.statements import add_missing, coalesce_to_stored, insert, match_names, prefix_names, widen

_KEY = ("project", "cluster", "name")
_DESCRIBED = ("resource_group", "info")
_MOST_NAMED = 500
"""Most names in a query; for more names all nodes of a project are read."""
_DAYS = Retention.__struct_fields__


def prepare_nodes(project: str, records: Sequence[NodeRecord], now_ms: int) -> list[dict[str, Any]]:
    """Return the rows of node records; the node's last-seen time is now. Raises as ``rows.make_node_values``."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        key = {"project": project, "cluster": record.cluster, "name": record.name}
        row = {**key, "first_seen": now_ms, "last_seen": now_ms, **make_node_values(record)}
        before = rows.get((record.cluster, record.name), {})
        rows[record.cluster, record.name] = {
            name: before.get(name) if value is None else value for name, value in row.items()
        }
    return [rows[key] for key in sorted(rows)]


def merge_nodes(connection: sa.Connection, rows: Sequence[dict[str, Any]], now_ms: int) -> list[dict[str, Any]]:
    """Store checked rows: times widen, other fields are replaced. Return the events."""
    happened = make_node_events(connection, rows, now_ms)
    spans = [{name: row[name] for name in (*_KEY, "first_seen", "last_seen")} for row in rows]
    widen(connection, nodes, spans, ("first_seen", "last_seen"))
    changes = [
        prefix_names(row, _KEY, "key_") | prefix_names(row, _DESCRIBED, "new_")
        for row in rows
        if any(row[name] is not None for name in _DESCRIBED)
    ]
    if changes:
        connection.execute(_DESCRIBE, changes)
    return happened


def list_nodes(
    connection: sa.Connection, projects: frozenset[str] | None, names: frozenset[str] | None = None
) -> list[Node]:
    """Return the nodes with these names (None: all), by cluster and name."""
    sought = names if names is None or len(names) <= _MOST_NAMED else None
    question = sa.select(nodes).where(match_names(nodes.c.project, projects), match_names(nodes.c.name, sought))
    rows = connection.execute(question.order_by(nodes.c.cluster, nodes.c.name, nodes.c.project))
    return [make_node(row) for row in rows if names is None or row.name in names]


def list_project_names(connection: sa.Connection) -> Sequence[str]:
    """Return the names of all projects that have ever been written to."""
    return connection.scalars(sa.select(projects.c.name).order_by(projects.c.name)).all()


def read_project_retention(connection: sa.Connection, project: str) -> Retention | None:
    """Return a project's own retention; None without a setting."""
    question = sa.select(*(projects.c[name] for name in _DAYS)).where(projects.c.name == project)
    row = connection.execute(question).one_or_none()
    if row is None or row.raw_days is None:
        return None
    return msgspec.convert(row, Retention, from_attributes=True)


def set_project_retention(connection: sa.Connection, project: str, retention: Retention | None) -> None:
    """Set the retention of a project; None removes its setting."""
    days = {name: None if retention is None else getattr(retention, name) for name in _DAYS}
    statement = insert(connection, projects).values(name=project, **days)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=days))


def add_projects(connection: sa.Connection, names: Sequence[str]) -> None:
    """Create the rows of projects that have none."""
    add_missing(connection, projects, [{"name": name} for name in sorted(set(names))])


_DESCRIBE = (
    sa.update(nodes)
    .where(*(nodes.c[name] == sa.bindparam(f"key_{name}") for name in _KEY))
    .values({name: coalesce_to_stored(nodes.c[name]) for name in _DESCRIBED})
)


def list_projects(connection: sa.Connection, names: frozenset[str] | None, now_ms: int) -> list[Project]:
    """Return the projects with these names (None: all), sorted."""
    question = sa.select(projects.c.name).where(match_names(projects.c.name, names)).order_by(projects.c.name)
    return [_project(connection, name, now_ms) for name in connection.scalars(question).all()]


def _project(connection: sa.Connection, name: str, now_ms: int) -> Project:
    # Both ends of one index: no listing, and no count of jobs.
    order = (jobs.c.created_sort, jobs.c.id)
    newest = sa.select(jobs).where(jobs.c.project == name).order_by(*(column.desc() for column in order)).limit(1)
    oldest = sa.select(jobs.c.created_sort).where(jobs.c.project == name).order_by(*order).limit(1)
    row = connection.execute(newest).first()
    latest = None if row is None else make_job(row, now_ms)
    return Project(name=name, created=connection.scalar(oldest), latest=latest)
