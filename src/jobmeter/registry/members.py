"""Merges records of replicas into the table, field by field, and adds events for state changes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import JobState
from jobmeter.model.record import ReplicaRecord
from jobmeter.model.time import format_iso
from jobmeter.registry import merge
from jobmeter.registry.events import make_state_row
from jobmeter.registry.schema import replicas
from jobmeter.registry.statements import iterate_chunks, prefix_names, update_each

_KEY = ("project", "job", "name", "attempt")
_PLAIN = (*merge.LIFE, "reason")
_COLUMNS = ("rank", "cluster", "node", "pod_id", "pod", *_PLAIN)

Member = tuple[str, ReplicaRecord, Mapping[str, Any]]
"""The job's id, the record of its replica, and the columns that the record sets."""
_Name = tuple[str, str, int]


def merge_replicas(
    connection: sa.Connection, project: str, members: Sequence[Member], now_ms: int
) -> Iterable[dict[str, Any]]:
    """Merge the records of replicas, later ones over earlier ones. Return the events of state changes.

    Raises InvalidRequestError for a replica that starts again as an attempt that has ended.
    """
    stored = _read_stored(connection, project, sorted({(job, replica.name) for job, replica, _ in members}))
    existing = set(stored)
    changes: dict[_Name, dict[str, Any]] = {}
    happened = []
    for job, replica, values in members:
        name = (job, replica.name, replica.attempt)
        before = stored.get(name, _UNKNOWN)
        life = merge.merge_replica_life(before, values)
        if life is None:
            raise _make_ended_error(name, before)
        key = dict(zip(_KEY, (project, *name), strict=True))
        change = prefix_names(key, _KEY, "key_") | prefix_names({**values, **life}, _COLUMNS, "new_")
        changes[name] = merge.join_changes(changes.get(name), change, _UPDATE.plain)
        if life["state"] is not None and life["state"] != before["reported"]:
            happened.append(_event(project, job, replica, {**values, **life}, now_ms))
        stored[name] = {**before, **life, "reported": life["state"] or before["reported"]}
    # The jobs' rows are locked: nobody else inserts replicas of them.
    _UPDATE.add(connection, [change for name, change in changes.items() if name not in existing])
    _UPDATE.run(connection, [change for name, change in changes.items() if name in existing])
    return happened


def _make_ended_error(name: _Name, stored: Mapping[str, Any]) -> InvalidRequestError:
    job, replica, attempt = name
    return InvalidRequestError(
        f"attempt {attempt} of replica {replica} of job {job!r} ended at {format_iso(stored['end'])}: "
        "a replica that starts again is its next attempt",
        "replicas.attempt",
    )


def _event(project: str, job: str, replica: ReplicaRecord, values: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    state = JobState(values["state"])
    time_ms = values["end"] if state.finished else values["start"] if state is JobState.RUNNING else None
    return make_state_row(
        project,
        job,
        state,
        now_ms if time_ms is None else time_ms,
        _describe_end(values) if state.finished else "",
        replica=replica.name,
        attempt=replica.attempt,
        cluster=values["cluster"] or "",
        node=values["node"] or "",
    )


def _describe_end(values: Mapping[str, Any]) -> str:
    """Describe an end by its exit status and reason, as far as they are recorded."""
    code = values["exit_code"]
    return "; ".join(filter(None, ("" if code is None else f"exit status {code}", values["reason"] or "")))


def _read_stored(
    connection: sa.Connection, project: str, names: Sequence[tuple[str, str]]
) -> dict[_Name, dict[str, Any]]:
    """Return the row of each replica; ``reported`` is the state in its last event."""
    found: dict[_Name, dict[str, Any]] = {}
    column = replicas.c
    columns = (column.job, column.name, column.attempt, *(column[name] for name in _PLAIN), column.last_sample)
    for some in iterate_chunks(names):
        question = sa.select(*columns).where(
            column.project == project,
            column.job.in_(sorted({job for job, _ in some})),
            column.name.in_(sorted({name for _, name in some})),
        )
        for row in connection.execute(question):
            state, start, end, code, reason, last = row[3:]
            sampled = None if last is None else JobState.RUNNING.value
            life = {"state": state, "start": start, "end": end, "exit_code": code, "reason": reason}
            found[row[0], row[1], row[2]] = {**life, "reported": state or sampled}
    return found


_UNKNOWN: Mapping[str, Any] = {**dict.fromkeys((*_PLAIN, "reported")), "reason": ""}
"""The stored values of a replica that does not exist."""
_UPDATE = update_each(replicas, _KEY, _COLUMNS, _PLAIN)
