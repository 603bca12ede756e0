"""What samples prove: jobs, replicas, nodes and allocations that nobody has to record."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import sqlalchemy as sa

from jobmeter.model.job import JobState
from jobmeter.registry.allocations import merge_allocations
from jobmeter.registry.base import Observation
from jobmeter.registry.events import state_row
from jobmeter.registry.held import Held, Learned
from jobmeter.registry.intervals import GAP_MS
from jobmeter.registry.nodes import add_projects
from jobmeter.registry.rows import search_text
from jobmeter.registry.schema import jobs, nodes, replicas
from jobmeter.registry.statements import chunks, widen

_TIMES = ("first_sample", "last_sample")
_REPLICA = ("project", "job", "name", "attempt")
K = TypeVar("K", bound=tuple[Any, ...])


def observe(
    connection: sa.Connection, observations: Sequence[Observation], now_ms: int, held: Held
) -> tuple[list[dict[str, Any]], Learned]:
    """See ``Registry.observe``.

    Gives the events of jobs and replicas that are now known to run, and what ``held`` may keep once it is committed.
    """
    learned = Learned()
    add_projects(connection, [seen.project for seen in observations])
    members = _members(observations)
    happened = _observe_jobs(connection, members, now_ms, held, learned)
    happened += _observe_replicas(connection, members, held, learned)
    others = held.go_on(connection, observations, learned)
    held.joined(merge_allocations(connection, others, GAP_MS), learned)
    _observe_nodes(connection, members)
    return happened, learned


def _members(observations: Iterable[Observation]) -> list[Observation]:
    """One observation for each replica at its place, however many devices it has there."""
    first: dict[tuple[Any, ...], Observation] = {}
    times: dict[tuple[Any, ...], tuple[int, int]] = {}
    for seen in observations:
        key = (seen.project, seen.job, seen.replica, seen.attempt, seen.cluster, seen.node)
        known = times.get(key)
        if known is None:
            first[key] = seen
            times[key] = (seen.first_ms, seen.last_ms)
        elif seen.first_ms < known[0] or seen.last_ms > known[1]:
            times[key] = (min(known[0], seen.first_ms), max(known[1], seen.last_ms))
    return [
        seen if (seen.first_ms, seen.last_ms) == times[key] else replace(seen, first_ms=begin, last_ms=end)
        for (key, seen), (begin, end) in zip(first.items(), times.values(), strict=True)
    ]


def _spans(seen: Iterable[tuple[K, Observation]]) -> dict[K, tuple[int, int]]:
    """First and last time of each key, in the order of the keys: all servers lock rows in one order."""
    spans: dict[K, tuple[int, int]] = {}
    for key, one in seen:
        known = spans.get(key)
        if known is None:
            spans[key] = (one.first_ms, one.last_ms)
        elif one.first_ms < known[0] or one.last_ms > known[1]:
            spans[key] = (min(known[0], one.first_ms), max(known[1], one.last_ms))
    return dict(sorted(spans.items()))


def _observe_jobs(
    connection: sa.Connection, observations: Sequence[Observation], now_ms: int, held: Held, learned: Learned
) -> list[dict[str, Any]]:
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
    fresh = [key for key in spans if not held.runs(key)]
    running = _not_known_to_run(connection, jobs, ("project", "id"), ("state", "end", "start", "last_sample"), fresh)
    learned.running.extend((key, None) for key in fresh)
    widen(connection, jobs, rows, _TIMES)
    return [
        state_row(project, job, JobState.RUNNING, first)
        for (project, job), (first, _) in spans.items()
        if (project, job) in running
    ]


def _observe_replicas(
    connection: sa.Connection, observations: Sequence[Observation], held: Held, learned: Learned
) -> list[dict[str, Any]]:
    members = [seen for seen in observations if seen.job and seen.replica]
    spans = _spans(((seen.project, seen.job, seen.replica, seen.attempt), seen) for seen in members)
    places = {
        (seen.project, seen.job, seen.replica, seen.attempt): (seen.cluster, seen.node) for seen in members if seen.node
    }
    rows: list[dict[str, Any]] = []
    for key, (first, last) in spans.items():
        project, job, replica, attempt = key
        cluster, node = places.get(key, ("", ""))
        names = {"project": project, "job": job, "name": replica, "attempt": attempt, "cluster": cluster, "node": node}
        rows.append({**names, "first_sample": first, "last_sample": last})
    fresh = [key for key in spans if not held.runs(key[:2], key[2:])]
    running = _not_known_to_run(connection, replicas, _REPLICA, ("state", "last_sample"), fresh)
    learned.running.extend((key[:2], key[2:]) for key in fresh)
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
