"""Merge what records say of jobs and their replicas into the tables, field by field."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import AllocationSource, Checkpoint, JobState
from jobmeter.model.record import JobRecord, ReplicaRecord, record_time, replicas_of
from jobmeter.registry import merge
from jobmeter.registry.allocations import merge_allocations
from jobmeter.registry.events import state_row
from jobmeter.registry.intervals import DeviceKey, Interval
from jobmeter.registry.rows import checkpoint_of, job_values, replica_values, search_text
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import add_missing, chunks, given, kept, renamed

_STANDING = ("state", "start", "end", "exit_code")
_MERGED = ("checkpoints", "extra")
_KNOWN = ("id", *_STANDING, "last_sample", "updated")
_JOB_COLUMNS = (
    *("name", "type", "state", "user", "resource_group", "workspace", "created", "start", "end", "error", "exit_code"),
    *("command", "instance_type", "limits", "labels", "search", *_MERGED, "updated"),
)
_REPLICA_COLUMNS = ("rank", "cluster", "node", "pod_id", "state", "start", "end", "exit_code", "reason")


_Member = tuple[str, ReplicaRecord, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job record, checked and turned into rows: nothing in it can fail any more."""

    record: JobRecord
    values: dict[str, Any]
    replicas: tuple[tuple[ReplicaRecord, dict[str, Any]], ...]
    allocations: tuple[tuple[str, str, str, str, Interval], ...]
    checkpoints: tuple[Checkpoint, ...] | None
    extra: merge.Extra | None


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
        None if record.checkpoints is None else tuple(checkpoint_of(one) for one in record.checkpoints),
        record.extra,
    )


def merge_jobs(
    connection: sa.Connection, project: str, prepared: Iterable[PreparedJob], now_ms: int
) -> list[dict[str, Any]]:
    """Bring checked records into ``jobs``, ``replicas`` and ``allocations``, later ones over earlier ones.

    Gives the events of the states that changed. Raises LimitExceededError when what a job has of something gets too
    much.
    """
    # One order for everybody, so that two servers never wait for each other's rows.
    entries = sorted(prepared, key=lambda entry: entry.record.job_id)
    add_missing(connection, jobs, [_new_job(project, entry.record.job_id, now_ms) for entry in entries])
    known = _known_jobs(connection, project, entries)
    changes, happened = [], []
    for entry in entries:
        before = known[entry.record.job_id]
        state = _state_before(before)
        changes.append(_job_change(project, entry, before, now_ms))
        if merge.job_state(before) is not state:
            happened.append(_job_event(project, entry, merge.job_state(before), state, now_ms))
    connection.execute(_UPDATE_JOB, changes)
    members = [(entry.record.job_id, replica, values) for entry in entries for replica, values in entry.replicas]
    if members:
        happened += _merge_replicas(connection, project, members, now_ms)
    _merge_devices(connection, project, entries, now_ms)
    return happened


def _new_job(project: str, job: str, now_ms: int) -> dict[str, Any]:
    search = search_text(job, "")
    return {"project": project, "id": job, "recorded": True, "noticed": now_ms, "search": search}


def _state_before(known: Mapping[str, Any]) -> JobState | None:
    """The state that the last event told of; None for a job that nobody has heard of."""
    if known["updated"] < 0 and known["last_sample"] is None:
        return None
    return merge.job_state(known)


def _job_event(
    project: str, entry: PreparedJob, state: JobState, before: JobState | None, now_ms: int
) -> dict[str, Any]:
    values = entry.values
    if state is JobState.QUEUED:
        # One that is queued again was created long before.
        time_ms = values["created"] if before is None else None
    else:
        time_ms = values["end"] if state.finished else values["start"]
    message = values["error"] if state is JobState.FAILED else None
    return state_row(project, entry.record.job_id, state, now_ms if time_ms is None else time_ms, message or "")


def _known_jobs(connection: sa.Connection, project: str, entries: Sequence[PreparedJob]) -> dict[str, dict[str, Any]]:
    """What the records build on, locked until the transaction ends; large texts only where a record adds to them."""
    found: dict[str, dict[str, Any]] = {}
    wide = {entry.record.job_id for entry in entries if entry.checkpoints is not None or entry.extra is not None}
    for ids, columns in (
        (sorted({entry.record.job_id for entry in entries}), _KNOWN),
        (sorted(wide), ("id", *_MERGED)),
    ):
        for some in chunks(ids):
            question = sa.select(*(jobs.c[name] for name in columns)).where(jobs.c.project == project)
            question = question.where(jobs.c.id.in_(some)).order_by(jobs.c.id).with_for_update()
            for row in connection.execute(question).mappings():
                found.setdefault(row["id"], dict.fromkeys(_MERGED)).update({str(k): v for k, v in row.items()})
    return found


def _job_change(project: str, entry: PreparedJob, known: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """The parameters of ``_UPDATE_JOB`` for one record; ``known`` is brought up to it."""
    values = {**entry.values, **merge.life(known, entry.values), "updated": now_ms, "checkpoints": None, "extra": None}
    if entry.checkpoints is not None:
        values["checkpoints"] = merge.merged_checkpoints(known["checkpoints"], entry.checkpoints)
    if entry.extra is not None:
        values["extra"] = merge.merged_extra(known["extra"], entry.extra)
    known.update({name: values[name] for name in (*_STANDING, "updated")})
    known.update({name: values[name] for name in _MERGED if values[name] is not None})
    return {"key_project": project, "key_id": entry.record.job_id, **renamed(values, _JOB_COLUMNS, "new_")}


def _merge_replicas(
    connection: sa.Connection, project: str, members: Sequence[_Member], now_ms: int
) -> Iterable[dict[str, Any]]:
    keys = [
        {"project": project, "job": job, "name": replica.name, "attempt": replica.attempt}
        for job, replica, _ in members
    ]
    add_missing(connection, replicas, keys)
    known = _known_states(connection, project, [(job, replica.name) for job, replica, _ in members])
    changes, happened = [], []
    for key, (job, replica, values) in zip(keys, members, strict=True):
        recorded, before = known[job, replica.name, replica.attempt]
        state = merge.replica_state(recorded, values["state"])
        changes.append(renamed(key, key, "key_") | renamed({**values, "state": state}, _REPLICA_COLUMNS, "new_"))
        if state is not None and state != before:
            happened.append(_replica_event(project, job, replica, values, JobState(state), now_ms))
        known[job, replica.name, replica.attempt] = (state, state or before)
    connection.execute(_UPDATE_REPLICA, changes)
    return happened


def _replica_event(
    project: str, job: str, replica: ReplicaRecord, values: Mapping[str, Any], state: JobState, now_ms: int
) -> dict[str, Any]:
    time_ms = values["end"] if state.finished else values["start"] if state is JobState.RUNNING else None
    return state_row(
        project,
        job,
        state,
        now_ms if time_ms is None else time_ms,
        (values["reason"] or "") if state.finished else "",
        replica=replica.name,
        attempt=replica.attempt,
        cluster=values["cluster"] or "",
        node=values["node"] or "",
    )


def _known_states(
    connection: sa.Connection, project: str, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str, int], tuple[str | None, str | None]]:
    """The recorded state of each replica, and the one that the last event told of."""
    found: dict[tuple[str, str, int], tuple[str | None, str | None]] = {}
    column = replicas.c
    for some in chunks(sorted(set(names))):
        question = sa.select(column.job, column.name, column.attempt, column.state, column.last_sample).where(
            column.project == project,
            column.job.in_(sorted({job for job, _ in some})),
            column.name.in_(sorted({name for _, name in some})),
        )
        for row in connection.execute(question):
            sampled = None if row.last_sample is None else JobState.RUNNING.value
            found[row.job, row.name, row.attempt] = (row.state, row.state or sampled)
    return found


def _updated(table: sa.Table, keys: Sequence[str], columns: Sequence[str], plain: Sequence[str]) -> sa.Update:
    """An UPDATE of one row: ``plain`` columns become what is handed over, the others where it is not None."""
    changes = {name: given(table.c[name]) if name in plain else kept(table.c[name]) for name in columns}
    return sa.update(table).where(*(table.c[name] == sa.bindparam(f"key_{name}") for name in keys)).values(changes)


_UPDATE_JOB = _updated(jobs, ("project", "id"), _JOB_COLUMNS, _STANDING).values(recorded=sa.true())
_UPDATE_REPLICA = _updated(replicas, ("project", "job", "name", "attempt"), _REPLICA_COLUMNS, ("state",))


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
