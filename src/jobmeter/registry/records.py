"""Merge what records say of jobs and their replicas into the tables, field by field."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import AllocationSource, JobState
from jobmeter.model.record import JobRecord, ReplicaRecord, record_time, replicas_of
from jobmeter.registry.allocations import merge_allocations
from jobmeter.registry.intervals import DeviceKey, Interval
from jobmeter.registry.rows import job_values, replica_values, search_text
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import add_missing, chunks, given, kept, one_of, renamed

_FINISHED = tuple(state.value for state in JobState if state.finished)
_OPEN = tuple(state.value for state in JobState if not state.finished)
_JOB_COLUMNS = (
    *("name", "type", "state", "user", "resource_group", "workspace", "created", "start", "end", "error", "exit_code"),
    *("command", "instance_type", "limits", "labels", "search"),
)
_REPLICA_COLUMNS = ("rank", "cluster", "node", "pod_id", "state", "start", "end", "exit_code", "reason")


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job record, checked and turned into rows: nothing in it can fail any more."""

    record: JobRecord
    values: dict[str, Any]
    replicas: tuple[tuple[ReplicaRecord, dict[str, Any]], ...]
    allocations: tuple[tuple[str, str, str, str, Interval], ...]


def prepare(project: str, record: JobRecord) -> PreparedJob:
    """Check and turn one record. Raises InvalidRequestError naming the field, LimitExceededError for a long text."""
    if record.project is not None and record.project != project:
        raise InvalidRequestError(
            f"job {record.job_id!r} names project {record.project!r}, this is project {project!r}", "project"
        )
    return PreparedJob(
        record,
        job_values(record),
        tuple((replica, replica_values(replica)) for replica in replicas_of(record)),
        tuple(_allocations(record)),
    )


def merge_jobs(connection: sa.Connection, project: str, prepared: Iterable[PreparedJob], now_ms: int) -> None:
    """Bring checked records into ``jobs``, ``replicas`` and ``allocations``, later ones over earlier ones."""
    # One order for everybody, so that two servers never wait for each other's rows.
    entries = sorted(prepared, key=lambda entry: entry.record.job_id)
    add_missing(connection, jobs, [_new_job(project, entry.record.job_id, now_ms) for entry in entries])
    connection.execute(
        _UPDATE_JOB,
        [
            {"key_project": project, "key_id": entry.record.job_id, **renamed(entry.values, _JOB_COLUMNS, "new_")}
            for entry in entries
        ],
    )
    members = [
        {"project": project, "job": entry.record.job_id, "name": replica.name, "attempt": replica.attempt, **values}
        for entry in entries
        for replica, values in entry.replicas
    ]
    if members:
        names = ("project", "job", "name", "attempt")
        add_missing(connection, replicas, [{name: member[name] for name in names} for member in members])
        connection.execute(
            _UPDATE_REPLICA,
            [renamed(member, names, "key_") | renamed(member, _REPLICA_COLUMNS, "new_") for member in members],
        )
    _merge_devices(connection, project, entries, now_ms)


def _new_job(project: str, job: str, now_ms: int) -> dict[str, Any]:
    search = search_text(job, "")
    return {"project": project, "id": job, "recorded": True, "noticed": now_ms, "search": search}


def _update_job() -> sa.Update:
    column = jobs.c
    closed = one_of(column.state, _FINISHED)
    opening = sa.and_(closed, one_of(given(column.state), _OPEN))
    # A job that is said to run after it has finished was either started again, later than its end, or an old message
    # was delivered once more; then what is known stands.
    again = sa.and_(opening, given(column.start) > sa.func.coalesce(column.end, column.last_sample, column.start))
    changes = {name: kept(column[name]) for name in _JOB_COLUMNS}
    changes["state"] = sa.case((again, given(column.state)), (opening, column.state), else_=kept(column.state))
    changes["start"] = sa.case(
        (again, given(column.start)),
        (opening, sa.func.coalesce(column.start, given(column.start))),
        else_=kept(column.start),
    )
    for name in ("end", "exit_code"):
        changes[name] = sa.case((again, given(column[name])), else_=kept(column[name]))
    changes["error"] = sa.case((again, sa.func.coalesce(given(column.error), "")), else_=kept(column.error))
    return (
        sa.update(jobs)
        .where(column.project == sa.bindparam("key_project"), column.id == sa.bindparam("key_id"))
        .values({**changes, "recorded": sa.true()})
    )


def _update_replica() -> sa.Update:
    column = replicas.c
    late = sa.and_(one_of(column.state, _FINISHED), one_of(given(column.state), _OPEN))
    changes = {name: kept(column[name]) for name in _REPLICA_COLUMNS}
    changes["state"] = sa.case((late, column.state), else_=kept(column.state))
    return (
        sa.update(replicas)
        .where(*(column[name] == sa.bindparam(f"key_{name}") for name in ("project", "job", "name", "attempt")))
        .values(changes)
    )


_UPDATE_JOB = _update_job()
_UPDATE_REPLICA = _update_replica()


def _allocations(record: JobRecord) -> Iterable[tuple[str, str, str, str, Interval]]:
    for entry in record.allocations:
        start, end = record_time(entry.start, "allocations.start"), record_time(entry.end, "allocations.end")
        if start is None or (end is not None and end < start):
            raise InvalidRequestError("an allocation's end must not be before its start", "allocations.end")
        if entry.source not in set(AllocationSource):
            raise InvalidRequestError(
                f"allocations.source {entry.source[:64]!r} is none of {', '.join(AllocationSource)}",
                "allocations.source",
            )
        yield (entry.replica, entry.node, entry.device, entry.source, Interval(start, end, entry.cluster, entry.rank))


def _merge_devices(connection: sa.Connection, project: str, entries: Sequence[PreparedJob], now_ms: int) -> None:
    holders = sorted({entry.record.job_id for entry in entries if any(r.devices for r, _ in entry.replicas)})
    known = _known_replicas(connection, project, holders)
    fresh = [
        (DeviceKey(project, entry.record.job_id, replica, node, device, source), interval)
        for entry in entries
        for replica, node, device, source, interval in entry.allocations
    ]
    for entry in entries:
        for replica, _ in entry.replicas:
            if replica.devices:
                fresh.extend(
                    _held(project, replica, known[(entry.record.job_id, replica.name, replica.attempt)], now_ms)
                )
    merge_allocations(connection, fresh, gap_ms=0)


def _held(project: str, replica: ReplicaRecord, row: sa.Row[Any], now_ms: int) -> Iterable[tuple[DeviceKey, Interval]]:
    # A record that names devices but no start: they were held since the replica, or else its job, is known to run.
    start = next(time for time in (row.start, row.job_start, row.first_sample, now_ms) if time is not None)
    end = None if row.end is None else max(row.end, start)
    for device in replica.devices:
        key = DeviceKey(project, row.job, replica.name, row.node, device, AllocationSource.RECORD.value)
        yield key, Interval(start, end, row.cluster, row.rank)


def _known_replicas(
    connection: sa.Connection, project: str, ids: Sequence[str]
) -> dict[tuple[str, str, int], sa.Row[Any]]:
    rows: dict[tuple[str, str, int], sa.Row[Any]] = {}
    inner = sa.and_(jobs.c.project == replicas.c.project, jobs.c.id == replicas.c.job)
    for some in chunks(ids):
        question = (
            sa.select(replicas, jobs.c.start.label("job_start"))
            .join(jobs, inner)
            .where(replicas.c.project == project, replicas.c.job.in_(some))
        )
        rows.update({(row.job, row.name, row.attempt): row for row in connection.execute(question)})
    return rows
