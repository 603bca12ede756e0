"""Merges records of jobs and their replicas into the tables, field by field."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.extra import Extra, merge_extra
from jobmeter.model.job import AllocationSource, Checkpoint, JobState
from jobmeter.model.record import JobRecord, ReplicaRecord, list_replicas, record_time
from jobmeter.model.time import format_iso
from jobmeter.registry import merge
from jobmeter.registry.allocations import merge_allocations
from jobmeter.registry.database import POSTGRESQL
from jobmeter.registry.events import make_state_row
from jobmeter.registry.intervals import DeviceKey, Interval
from jobmeter.registry.members import merge_replicas
from jobmeter.registry.rows import make_checkpoint, make_job_values, make_replica_values
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import add_missing, iterate_chunks, prefix_names, update_each

_MERGED = ("checkpoints", "extra")
_PLAIN = (*merge.LIFE, *merge.LEASE, "lost")
_STORED = ("id", *_PLAIN, "last_sample", "updated")
_JOB_COLUMNS = (
    *("name", "type", "state", "user", "resource_group", "workspace", "created", "start", "end", "error", "exit_code"),
    *("command", "instance_type", "limits", "labels", *_MERGED, "updated", *merge.LEASE, "lost"),
)


class PreparedJob(msgspec.Struct, frozen=True):
    """A job record, checked and converted to rows: no later step can reject it."""

    record: JobRecord
    values: dict[str, Any]
    replicas: tuple[tuple[ReplicaRecord, dict[str, Any]], ...]
    allocations: tuple[tuple[str, str, str, str, Interval], ...]
    checkpoints: tuple[Checkpoint, ...] | None
    extra: Extra | None


def prepare(project: str, record: JobRecord) -> PreparedJob:
    """Check and convert one record. Raises InvalidRequestError naming the field, LimitExceededError for a long text."""
    if record.project is not None and record.project != project:
        raise InvalidRequestError(
            f"job {record.job_id!r} names project {record.project!r}, this is project {project!r}", "project"
        )
    return PreparedJob(
        record,
        make_job_values(record),
        tuple((replica, make_replica_values(replica)) for replica in list_replicas(record)),
        tuple(_allocations(record)),
        None if record.checkpoints is None else tuple(make_checkpoint(one) for one in record.checkpoints),
        record.extra,
    )


def merge_jobs(
    connection: sa.Connection, project: str, prepared: Iterable[PreparedJob], now_ms: int
) -> list[dict[str, Any]]:
    """Merge checked records into ``jobs``, ``replicas`` and ``allocations``, later ones over earlier ones.

    Returns the events of state changes. Raises LimitExceededError if a job exceeds a limit.
    """
    # The same order in every server, so that two servers never wait for each other's rows.
    entries = sorted(prepared, key=lambda entry: entry.record.job_id)
    if connection.dialect.name == POSTGRESQL:
        # Another server may insert the same job meanwhile: each job is made first, then locked and updated.
        ids = dict.fromkeys(entry.record.job_id for entry in entries)
        add_missing(connection, jobs, [_make_new_job(project, job, now_ms) for job in ids])
        existing = set(ids)
    else:
        existing = _find_existing(connection, project, entries)
    fresh = [entry for entry in entries if entry.record.job_id not in existing]
    changes, happened = _merge_records(project, fresh, defaultdict(_make_default_values), now_ms)
    _UPDATE_JOB.add(connection, changes, recorded=True, noticed=now_ms)
    known = [entry for entry in entries if entry.record.job_id in existing]
    changes, updated = _merge_records(project, known, _read_stored_jobs(connection, project, known), now_ms)
    _UPDATE_JOB.run(connection, changes)
    happened += updated
    members = [(entry.record.job_id, replica, values) for entry in entries for replica, values in entry.replicas]
    if members:
        happened += merge_replicas(connection, project, members, now_ms)
    _merge_devices(connection, project, entries, now_ms)
    return happened


def _merge_records(
    project: str, entries: Sequence[PreparedJob], stored: Mapping[str, dict[str, Any]], now_ms: int
) -> tuple[Collection[dict[str, Any]], list[dict[str, Any]]]:
    """Return the parameters of ``_UPDATE_JOB`` for each job, and the events of state changes."""
    changes: dict[str, dict[str, Any]] = {}
    happened = []
    for entry in entries:
        job = entry.record.job_id
        before = stored[job]
        state = _state_before(before)
        change = _job_change(project, entry, before, now_ms)
        changes[job] = merge.join_changes(changes.get(job), change, _UPDATE_JOB.plain)
        if _is_news(entry, merge.find_job_state(before), state):
            happened.append(_job_event(project, entry, merge.find_job_state(before), state, now_ms))
    _merge_documents(entries, stored, changes)
    return changes.values(), happened


def _merge_documents(
    entries: Iterable[PreparedJob], stored: Mapping[str, Mapping[str, Any]], changes: Mapping[str, dict[str, Any]]
) -> None:
    """Add checkpoints and ``extra`` to the changes.

    Each job's are read and written once, whatever the number of records.
    """
    checkpoints: defaultdict[str, list[Checkpoint]] = defaultdict(list)
    extra: defaultdict[str, list[Extra]] = defaultdict(list)
    for entry in entries:
        if entry.checkpoints is not None:
            checkpoints[entry.record.job_id].extend(entry.checkpoints)
        if entry.extra is not None:
            extra[entry.record.job_id].append(entry.extra)
    for job, fresh in checkpoints.items():
        changes[job]["new_checkpoints"] = merge.merge_checkpoints(stored[job]["checkpoints"], fresh)
    for job, given in extra.items():
        changes[job]["new_extra"] = merge_extra(stored[job]["extra"], given)


def _is_news(entry: PreparedJob, state: JobState, before: JobState | None) -> bool:
    """Return True if a state adds an event: a job has none for waiting unless a record said so."""
    waits = entry.values["state"] is not None or entry.values["created"] is not None
    return state is not before and (state is not JobState.QUEUED or waits)


def _make_new_job(project: str, job: str, now_ms: int) -> dict[str, Any]:
    return {"project": project, "id": job, "recorded": True, "noticed": now_ms}


def _make_default_values() -> dict[str, Any]:
    """Return the stored values of a job that does not exist."""
    return {**dict.fromkeys((*_STORED, *_MERGED)), "lease_owner": "", "updated": -1}


def _state_before(stored: Mapping[str, Any]) -> JobState | None:
    """Return the state in the last event; None for a job that does not exist."""
    if stored["updated"] < 0 and stored["last_sample"] is None:
        return None
    return merge.find_job_state(stored)


def _job_event(
    project: str, entry: PreparedJob, state: JobState, before: JobState | None, now_ms: int
) -> dict[str, Any]:
    values = entry.values
    if state is JobState.QUEUED:
        # A job that is queued again was created long before.
        time_ms = values["created"] if before is None else None
    else:
        time_ms = values["end"] if state.finished else values["start"]
    message = values["error"] if state is JobState.FAILED else None
    return make_state_row(project, entry.record.job_id, state, now_ms if time_ms is None else time_ms, message or "")


def _find_existing(connection: sa.Connection, project: str, entries: Sequence[PreparedJob]) -> set[str]:
    """Return the ids of the jobs that exist."""
    found: set[str] = set()
    for some in iterate_chunks(sorted({entry.record.job_id for entry in entries})):
        found.update(connection.scalars(sa.select(jobs.c.id).where(jobs.c.project == project, jobs.c.id.in_(some))))
    return found


def _read_stored_jobs(
    connection: sa.Connection, project: str, entries: Sequence[PreparedJob]
) -> dict[str, dict[str, Any]]:
    """Return the stored values that the records build on, locked until the transaction ends.

    Large texts are read only if a record adds to them.
    """
    found: dict[str, dict[str, Any]] = {}
    wide = {entry.record.job_id for entry in entries if entry.checkpoints is not None or entry.extra is not None}
    for ids, columns in (
        (sorted({entry.record.job_id for entry in entries}), _STORED),
        (sorted(wide), ("id", *_MERGED)),
    ):
        for some in iterate_chunks(ids):
            question = sa.select(*(jobs.c[name] for name in columns)).where(jobs.c.project == project)
            question = question.where(jobs.c.id.in_(some)).order_by(jobs.c.id).with_for_update()
            for row in connection.execute(question).mappings():
                found.setdefault(row["id"], dict.fromkeys(_MERGED)).update({str(k): v for k, v in row.items()})
    return found


def _job_change(project: str, entry: PreparedJob, stored: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the parameters of ``_UPDATE_JOB`` for one record, and update ``stored`` to match."""
    life = merge.merge_life(stored, entry.values, restart=any(replica.attempt for replica, _ in entry.replicas))
    lease = merge.merge_lease(stored, life["state"], entry.record.lease, now_ms)
    if lease is None:
        until = format_iso(stored["lease_renewed"] + stored["lease_ms"])
        raise InvalidRequestError(
            f"job {entry.record.job_id!r} is running: another run has its lease until {until}", "lease"
        )
    values = {**entry.values, **life, **lease, "updated": now_ms, "checkpoints": None, "extra": None}
    stored.update({name: values[name] for name in (*_PLAIN, "updated")})
    return {"key_project": project, "key_id": entry.record.job_id, **prefix_names(values, _JOB_COLUMNS, "new_")}


_UPDATE_JOB = update_each(jobs, ("project", "id"), _JOB_COLUMNS, _PLAIN, recorded=sa.true())


def _allocations(record: JobRecord) -> Iterable[tuple[str, str, str, str, Interval]]:
    for entry in record.allocations:
        start, end = record_time(entry.start, "allocations.start"), record_time(entry.end, "allocations.end")
        if start is None or (end is not None and end < start):
            raise InvalidRequestError("an allocation's end must not be before its start", "allocations.end")
        if entry.source not in set(AllocationSource):
            raise InvalidRequestError(
                f"allocations.source {entry.source[:64]!r} is not one of {', '.join(AllocationSource)}",
                "allocations.source",
            )
        yield (entry.replica, entry.node, entry.device, entry.source, Interval(start, end, entry.cluster, entry.rank))


def _merge_devices(connection: sa.Connection, project: str, entries: Sequence[PreparedJob], now_ms: int) -> None:
    holders = sorted({entry.record.job_id for entry in entries if any(r.devices for r, _ in entry.replicas)})
    stored = _read_stored_replicas(connection, project, holders)
    fresh = [
        (DeviceKey(project, entry.record.job_id, replica, node, device, source), interval)
        for entry in entries
        for replica, node, device, source, interval in entry.allocations
    ]
    for entry in entries:
        for replica, _ in entry.replicas:
            if replica.devices:
                fresh.extend(
                    _list_allocations(
                        project, replica, stored[(entry.record.job_id, replica.name, replica.attempt)], now_ms
                    )
                )
    merge_allocations(connection, fresh, gap_ms=0)


def _list_allocations(
    project: str, replica: ReplicaRecord, row: sa.Row[Any], now_ms: int
) -> Iterable[tuple[DeviceKey, Interval]]:
    # A record with devices but no start: they are allocated since the start of the replica, else of its job.
    start = next(time for time in (row.start, row.job_start, row.first_sample, now_ms) if time is not None)
    end = None if row.end is None else max(row.end, start)
    for device in replica.devices:
        key = DeviceKey(project, row.job, replica.name, row.node, device, AllocationSource.RECORD.value)
        yield key, Interval(start, end, row.cluster, row.rank)


def _read_stored_replicas(
    connection: sa.Connection, project: str, ids: Sequence[str]
) -> dict[tuple[str, str, int], sa.Row[Any]]:
    rows: dict[tuple[str, str, int], sa.Row[Any]] = {}
    inner = sa.and_(jobs.c.project == replicas.c.project, jobs.c.id == replicas.c.job)
    for some in iterate_chunks(ids):
        question = (
            sa.select(replicas, jobs.c.start.label("job_start"))
            .join(jobs, inner)
            .where(replicas.c.project == project, replicas.c.job.in_(some))
        )
        rows.update({(row.job, row.name, row.attempt): row for row in connection.execute(question)})
    return rows
