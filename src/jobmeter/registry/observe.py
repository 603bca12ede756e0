"""Creates the jobs, replicas, nodes and allocations that samples prove, without any record."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from msgspec.structs import replace

from jobmeter.model.job import JobState
from jobmeter.registry.allocations import merge_allocations
from jobmeter.registry.events import make_state_row
from jobmeter.registry.interval_cache import IntervalCache, IntervalChanges
from jobmeter.registry.intervals import GAP_MS
from jobmeter.registry.nodes import add_projects
from jobmeter.registry.schema import jobs, nodes, replicas
from jobmeter.registry.statements import iterate_chunks, widen
from jobmeter.registry.stored import Observation

_JOB = attrgetter("project", "job")
_MEMBER = attrgetter("project", "job", "replica", "attempt")
_PLACE = attrgetter("project", "job", "replica", "attempt", "cluster", "node")
_NODE = attrgetter("project", "cluster", "node")
_TIMES = ("first_sample", "last_sample")
_REPLICA = ("project", "job", "name", "attempt")
K = TypeVar("K", bound=tuple[Any, ...])


def observe(
    connection: sa.Connection, observations: Sequence[Observation], now_ms: int, intervals: IntervalCache
) -> tuple[list[dict[str, Any]], IntervalChanges]:
    """Create the rows that samples name, and extend their times.

    Returns the events of jobs and replicas that now run, and the changes for ``intervals`` after the commit.
    """
    updates = IntervalChanges()
    add_projects(connection, [observation.project for observation in observations])
    members = _members(observations)
    happened = _observe_jobs(connection, members, now_ms, intervals, updates)
    happened += _observe_replicas(connection, members, intervals, updates)
    others = intervals.go_on(connection, observations, updates)
    intervals.note_joined(merge_allocations(connection, others, GAP_MS), updates)
    _observe_nodes(connection, members)
    return happened, updates


def _members(observations: Iterable[Observation]) -> list[Observation]:
    """Return one observation for each replica on its node, whatever its number of devices there."""
    pairs = [(_PLACE(observation), observation) for observation in observations]
    first = dict(reversed(pairs))
    return [
        one if (one.first_ms, one.last_ms) == (begin, end) else replace(one, first_ms=begin, last_ms=end)
        for one, (begin, end) in ((first[key], span) for key, span in _widen_spans(pairs).items())
    ]


def _widen_spans(observations: Iterable[tuple[K, Observation]]) -> dict[K, tuple[int, int]]:
    """Return the first and last time of each key."""
    spans: dict[K, tuple[int, int]] = {}
    for key, one in observations:
        span = spans.get(key)
        if span is None:
            spans[key] = (one.first_ms, one.last_ms)
        elif one.first_ms < span[0] or one.last_ms > span[1]:
            spans[key] = (min(span[0], one.first_ms), max(span[1], one.last_ms))
    return spans


def _spans(names: Callable[[Observation], K], observations: Iterable[Observation]) -> dict[K, tuple[int, int]]:
    """Return the first and last time of each key, sorted: all servers lock rows in one order."""
    return dict(sorted(_widen_spans((names(one), one) for one in observations).items()))


def _observe_jobs(
    connection: sa.Connection,
    observations: Sequence[Observation],
    now_ms: int,
    intervals: IntervalCache,
    updates: IntervalChanges,
) -> list[dict[str, Any]]:
    spans = _spans(_JOB, (observation for observation in observations if observation.job))
    fresh_job = {"recorded": False, "noticed": now_ms}
    rows = [
        {"project": project, "id": job, **fresh_job, "first_sample": first, "last_sample": last}
        for (project, job), (first, last) in spans.items()
    ]
    fresh = [key for key in spans if not intervals.is_running(key)]
    running = _find_not_running(connection, jobs, ("project", "id"), ("state", "end", "start", "last_sample"), fresh)
    updates.running.extend((key, None) for key in fresh)
    widen(connection, jobs, rows, _TIMES)
    return [
        make_state_row(project, job, JobState.RUNNING, first)
        for (project, job), (first, _) in spans.items()
        if (project, job) in running
    ]


def _observe_replicas(
    connection: sa.Connection, observations: Sequence[Observation], intervals: IntervalCache, updates: IntervalChanges
) -> list[dict[str, Any]]:
    members = [observation for observation in observations if observation.job and observation.replica]
    spans = _spans(_MEMBER, members)
    places = {_MEMBER(one): (one.cluster, one.node) for one in members if one.node}
    rows: list[dict[str, Any]] = []
    for key, (first, last) in spans.items():
        project, job, replica, attempt = key
        cluster, node = places.get(key, ("", ""))
        names = {"project": project, "job": job, "name": replica, "attempt": attempt, "cluster": cluster, "node": node}
        rows.append({**names, "first_sample": first, "last_sample": last})
    fresh = [key for key in spans if not intervals.is_running(key[:2], key[2:])]
    running = _find_not_running(connection, replicas, _REPLICA, ("state", "last_sample"), fresh)
    updates.running.extend((key[:2], key[2:]) for key in fresh)
    widen(connection, replicas, rows, _TIMES, fill=("cluster", "node"))
    return [
        make_state_row(
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


def _find_not_running(
    connection: sa.Connection,
    table: sa.Table,
    names: Sequence[str],
    reporting_columns: Sequence[str],
    keys: Sequence[tuple[Any, ...]],
) -> set[tuple[Any, ...]]:
    """Return the keys without a state from a record or a sample."""
    found = set(keys)
    key = [table.c[name] for name in names]
    for some in iterate_chunks(keys):
        # Column by column, which the primary key finds. More rows than requested do no harm.
        rough = [column.in_(sorted({one[place] for one in some})) for place, column in enumerate(key)]
        reported = [table.c[name].is_not(None) for name in reporting_columns]
        found.difference_update(
            tuple(row) for row in connection.execute(sa.select(*key).where(*rough, sa.or_(*reported)))
        )
    return found


def _observe_nodes(connection: sa.Connection, observations: Sequence[Observation]) -> None:
    spans = _spans(_NODE, (observation for observation in observations if observation.node))
    rows = [
        {"project": project, "cluster": cluster, "name": name, "first_seen": first, "last_seen": last}
        for (project, cluster, name), (first, last) in spans.items()
    ]
    widen(connection, nodes, rows, ("first_seen", "last_seen"))
