"""What samples prove: jobs, replicas, nodes and allocations that nobody has to record."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.job import AllocationSource, JobState
from jobmeter.registry.allocations import merge_allocations
from jobmeter.registry.base import Observation
from jobmeter.registry.events import state_row
from jobmeter.registry.intervals import GAP_MS, DeviceKey, Interval
from jobmeter.registry.nodes import add_projects
from jobmeter.registry.rows import search_text
from jobmeter.registry.schema import jobs, nodes, replicas
from jobmeter.registry.statements import chunks, widen

_TIMES = ("first_sample", "last_sample")
_REPLICA = ("project", "job", "name", "attempt")
_Spans = dict[tuple[Any, ...], tuple[int, int]]


def observe(connection: sa.Connection, observations: Sequence[Observation], now_ms: int) -> list[dict[str, Any]]:
    """See ``Registry.observe``. Gives the events of jobs and replicas that are now known to run."""
    add_projects(connection, [seen.project for seen in observations])
    happened = _observe_jobs(connection, observations, now_ms)
    happened += _observe_replicas(connection, observations)
    merge_allocations(connection, list(_devices(observations)), GAP_MS)
    _observe_nodes(connection, observations)
    return happened


def _spans(seen: Iterable[tuple[tuple[Any, ...], Observation]]) -> _Spans:
    """First and last time of each key, in the order of the keys: all servers lock rows in one order."""
    spans: _Spans = {}
    for key, one in seen:
        first, last = spans.get(key, (one.first_ms, one.last_ms))
        spans[key] = (min(first, one.first_ms), max(last, one.last_ms))
    return dict(sorted(spans.items()))


def _observe_jobs(connection: sa.Connection, observations: Sequence[Observation], now_ms: int) -> list[dict[str, Any]]:
    spans = _spans(((seen.project, seen.job), seen) for seen in observations if seen.job)
    rows = [
        {
            "project": project,
            "id": job,
            "recorded": False,
            "noticed": now_ms,
            "search": search_text(job, ""),
            "first_sample": first,
            "last_sample": last,
        }
        for (project, job), (first, last) in spans.items()
    ]
    running = _not_known_to_run(
        connection, jobs, ("project", "id"), ("state", "end", "start", "last_sample"), list(spans)
    )
    widen(connection, jobs, rows, _TIMES)
    return [
        state_row(project, job, JobState.RUNNING, first)
        for (project, job), (first, _) in spans.items()
        if (project, job) in running
    ]


def _observe_replicas(connection: sa.Connection, observations: Sequence[Observation]) -> list[dict[str, Any]]:
    members = [seen for seen in observations if seen.job and seen.replica]
    spans = _spans(((seen.project, seen.job, seen.replica, seen.attempt), seen) for seen in members)
    places = {
        (seen.project, seen.job, seen.replica, seen.attempt): (seen.cluster, seen.node) for seen in members if seen.node
    }
    rows = []
    for key, (first, last) in spans.items():
        project, job, replica, attempt = key
        cluster, node = places.get(key, ("", ""))
        names = {"project": project, "job": job, "name": replica, "attempt": attempt, "cluster": cluster, "node": node}
        rows.append({**names, "first_sample": first, "last_sample": last})
    running = _not_known_to_run(connection, replicas, _REPLICA, ("state", "last_sample"), list(spans))
    widen(connection, replicas, rows, _TIMES, fill=("cluster", "node"))
    return [
        state_row(
            row["project"],
            row["job"],
            JobState.RUNNING,
            row["first_sample"],
            replica=row["name"],
            **{name: row[name] for name in ("attempt", "cluster", "node")},
        )
        for row in rows
        if tuple(row[name] for name in _REPLICA) in running
    ]


def _not_known_to_run(
    connection: sa.Connection,
    table: sa.Table,
    names: Sequence[str],
    told_by: Sequence[str],
    keys: Sequence[tuple[Any, ...]],
) -> set[tuple[Any, ...]]:
    """Those of the keys of which no record and no sample has told a state yet."""
    found = set(keys)
    key = [table.c[name] for name in names]
    for some in chunks(keys):
        # Name by name, which the primary key finds; more rows than asked for do no harm.
        rough = [column.in_(sorted({one[place] for one in some})) for place, column in enumerate(key)]
        told = [table.c[name].is_not(None) for name in told_by]
        found.difference_update(tuple(row) for row in connection.execute(sa.select(*key).where(*rough, sa.or_(*told))))
    return found


def _observe_nodes(connection: sa.Connection, observations: Sequence[Observation]) -> None:
    spans = _spans(((seen.project, seen.cluster, seen.node), seen) for seen in observations if seen.node)
    rows = [
        {"project": project, "cluster": cluster, "name": name, "first_seen": first, "last_seen": last}
        for (project, cluster, name), (first, last) in spans.items()
    ]
    widen(connection, nodes, rows, ("first_seen", "last_seen"))


def _devices(observations: Sequence[Observation]) -> Iterable[tuple[DeviceKey, Interval]]:
    source = AllocationSource.IMPORT.value
    for seen in observations:
        if seen.job and seen.replica and seen.device:
            key = DeviceKey(seen.project, seen.job, seen.replica, seen.node, seen.device, source)
            yield key, Interval(seen.first_ms, seen.last_ms, seen.cluster)
