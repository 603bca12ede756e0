"""Nodes, and how long the samples of a project are kept."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import Node
from jobmeter.model.record import NodeRecord
from jobmeter.model.retention import Retention
from jobmeter.registry.rows import node_of, node_values
from jobmeter.registry.schema import nodes, projects
from jobmeter.registry.statements import add_missing, insert, kept, renamed, widen

_KEY = ("project", "cluster", "name")
_TOLD = ("resource_group", "info")
_DAYS = ("raw_days", "minute_days", "hour_days")


def prepare_nodes(project: str, records: Sequence[NodeRecord], now_ms: int) -> list[dict[str, Any]]:
    """The rows that node records mean: a node that speaks of itself is seen now. Raises as ``rows.node_values``."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        key = {"project": project, "cluster": record.cluster, "name": record.name}
        row = {**key, "first_seen": now_ms, "last_seen": now_ms, **node_values(record)}
        before = rows.get((record.cluster, record.name), {})
        rows[record.cluster, record.name] = {
            name: before.get(name) if value is None else value for name, value in row.items()
        }
    return [rows[key] for key in sorted(rows)]


def merge_nodes(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Bring checked rows in: times widen, what the record says replaces what is there."""
    seen = [{name: row[name] for name in (*_KEY, "first_seen", "last_seen")} for row in rows]
    widen(connection, nodes, seen, ("first_seen", "last_seen"))
    told = [
        renamed(row, _KEY, "key_") | renamed(row, _TOLD, "new_")
        for row in rows
        if any(row[name] is not None for name in _TOLD)
    ]
    if told:
        connection.execute(_TELL, told)


def list_nodes(connection: sa.Connection, names: frozenset[str] | None) -> list[Node]:
    """See ``Registry.nodes``."""
    question = sa.select(nodes).order_by(nodes.c.cluster, nodes.c.name, nodes.c.project)
    if names is not None:
        question = question.where(nodes.c.project.in_(sorted(names)))
    return [node_of(row) for row in connection.execute(question)]


def every_project(connection: sa.Connection) -> Sequence[str]:
    """The names of all projects that ever had something."""
    return connection.scalars(sa.select(projects.c.name).order_by(projects.c.name)).all()


def project_retention(connection: sa.Connection, project: str) -> Retention | None:
    """A project's own setting; None where it has none."""
    question = sa.select(*(projects.c[name] for name in _DAYS)).where(projects.c.name == project)
    row = connection.execute(question).one_or_none()
    if row is None or row.raw_days is None:
        return None
    return Retention(raw_days=row.raw_days, minute_days=row.minute_days, hour_days=row.hour_days)


def set_project_retention(connection: sa.Connection, project: str, retention: Retention | None) -> None:
    """See ``Registry.set_retention``."""
    days = {name: None if retention is None else getattr(retention, name) for name in _DAYS}
    statement = insert(connection, projects).values(name=project, **days)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=days))


def add_projects(connection: sa.Connection, names: Sequence[str]) -> None:
    """Make sure that those projects have their rows."""
    add_missing(connection, projects, [{"name": name} for name in sorted(set(names))])


_TELL = (
    sa.update(nodes)
    .where(*(nodes.c[name] == sa.bindparam(f"key_{name}") for name in _KEY))
    .values({name: kept(nodes.c[name]) for name in _TOLD})
)
