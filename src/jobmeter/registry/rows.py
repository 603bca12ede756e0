"""Converts between the model's objects and the tables' rows: pure functions."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.job import Allocation, Checkpoint, InstanceType, Job, JobState, Node, Replica
from jobmeter.model.record import (
    MAX_TEXT,
    CheckpointRecord,
    JobRecord,
    NodeRecord,
    ReplicaRecord,
    normalize_limits,
    record_time,
)
from jobmeter.model.time import MAX_TIME_MS, MINUTE, format_iso
from jobmeter.registry.schema import SAMPLED

ALIVE_MS = 5 * MINUTE
"""Age of the last sample up to which a job or replica without a record runs; then its state is unknown."""
MAX_SHORT_TEXT = 256
"""Longest text, in characters, of a field that listings sort or filter by."""

_SHORT = ("name", "type", "user", "resource_group", "workspace")
_LONG = ("error", "command")
_INT64 = 2**63


def make_job_values(record: JobRecord) -> dict[str, Any]:
    """Return the columns of ``jobs`` that a record sets; None for a column that it leaves alone.

    Raises InvalidRequestError, or LimitExceededError for a text that is too long, naming the field.
    """
    values: dict[str, Any] = {name: _check_length(getattr(record, name), name, MAX_SHORT_TEXT) for name in _SHORT}
    values.update({name: _check_length(getattr(record, name), name, MAX_TEXT) for name in _LONG})
    values.update({name: record_time(getattr(record, name), name) for name in ("created", "start", "end")})
    _check_order(values["start"], values["end"], "end")
    values["state"] = record.state.value if record.state else None
    values["exit_code"] = _check_integer(record.exit_code, "exit_code")
    values["instance_type"] = _json(record.instance_type, "instance_type")
    values["limits"] = _json(None if record.limits is None else normalize_limits(record.limits), "limits")
    values["labels"] = _json(record.labels, "labels")
    if record.instance_type is not None:
        _instance_type(record.instance_type)
    return values


def make_checkpoint(record: CheckpointRecord) -> Checkpoint:
    """Return the checkpoint of a record. Raises as ``make_job_values``."""
    created = record_time(record.created, "checkpoints.created")
    size = _check_integer(record.size, "checkpoints.size")
    return Checkpoint(**{**msgspec.structs.asdict(record), "created": created, "size": size})


def make_replica_values(record: ReplicaRecord) -> dict[str, Any]:
    """Return the columns of ``replicas`` that a record sets; None for others. Raises as ``make_job_values``."""
    start, end = record_time(record.start, "replicas.start"), record_time(record.end, "replicas.end")
    _check_order(start, end, "replicas.end")
    return {
        "rank": _check_integer(record.rank, "replicas.rank"),
        "cluster": _check_length(record.cluster or None, "replicas.cluster", MAX_SHORT_TEXT),
        "node": _check_length(record.node or None, "replicas.node", MAX_SHORT_TEXT),
        "pod_id": _check_length(record.pod_id or None, "replicas.pod_id", MAX_SHORT_TEXT),
        "pod": _check_length(record.pod or None, "replicas.pod", MAX_SHORT_TEXT),
        "state": record.state.value if record.state else None,
        "start": start,
        "end": end,
        "exit_code": _check_integer(record.exit_code, "replicas.exit_code"),
        "reason": _check_length(record.reason or None, "replicas.reason", MAX_TEXT),
    }


def make_node_values(record: NodeRecord) -> dict[str, Any]:
    """Return the columns of ``nodes`` that a record sets; None for others. Raises as ``make_job_values``."""
    return {
        "info": _json(record.info or None, "nodes.info"),
        "resource_group": _check_length(record.resource_group or None, "nodes.resource_group", MAX_SHORT_TEXT),
    }


def make_job(row: sa.Row[Any], now_ms: int) -> Job:
    """Return the job of a row of ``jobs`` at that time; fields without a record are derived from its samples."""
    kind = row.instance_type
    return Job(
        id=row.id,
        project=row.project,
        name=row.name,
        type=row.type,
        state=_state(row.status, row.last_sample, now_ms),
        user=row.user,
        resource_group=row.resource_group,
        workspace=row.workspace,
        created=row.created,
        start=_time(row.start_sort),
        end=_time(row.end_sort),
        error=row.error,
        exit_code=row.exit_code,
        command=row.command,
        instance_type=_instance_type(msgspec.json.decode(kind)) if kind else None,
        limits=msgspec.json.decode(row.limits) if row.limits else {},
        labels=msgspec.json.decode(row.labels) if row.labels else {},
        checkpoints=_checkpoints(row.checkpoints) if row.checkpoints else [],
        extra=msgspec.json.decode(row.extra) if row.extra else {},
        updated=_time(row.updated),
        recorded=row.recorded,
        first_sample=row.first_sample,
        last_sample=row.last_sample,
    )


def make_replica(row: sa.Row[Any], job: Job, now_ms: int) -> Replica:
    """Return the replica of a row of ``replicas`` at that time, as part of its job.

    Without a recorded end it ends with its last sample, if its job has ended or has no record.
    """
    state = JobState(row.state) if row.state else None
    ended = job.state.finished or not job.recorded or (state is not None and state.finished)
    if state is None and not job.recorded and row.last_sample is not None:
        state = _state(SAMPLED, row.last_sample, now_ms)
    return Replica(
        name=row.name,
        attempt=row.attempt,
        rank=row.rank,
        cluster=row.cluster,
        node=row.node,
        pod_id=row.pod_id or f"{row.job}-{row.name}",
        pod=row.pod,
        state=state,
        start=row.first_sample if row.start is None else row.start,
        end=row.last_sample if row.end is None and ended else row.end,
        exit_code=row.exit_code,
        reason=row.reason,
    )


def make_allocation(row: sa.Row[Any], job: Job) -> Allocation:
    """Return the allocation of a row of ``allocations``. An open allocation ends with its job."""
    end = row.end
    if end is None and job.state.finished and job.end is not None:
        end = max(job.end, row.start)
    return Allocation(
        replica=row.replica,
        node=row.node,
        device=row.device,
        start=row.start,
        end=end,
        cluster=row.cluster,
        rank=row.rank,
        source=row.source,
    )


def make_node(row: sa.Row[Any]) -> Node:
    """Return the node of a row of ``nodes``."""
    return Node(
        name=row.name,
        project=row.project,
        cluster=row.cluster,
        resource_group=row.resource_group,
        first_seen=row.first_seen,
        last_seen=row.last_seen,
        info=msgspec.json.decode(row.info) if row.info else {},
    )


@lru_cache(maxsize=64)
def _checkpoints(text: str) -> list[Checkpoint]:
    # Cached: a job is queried often, and thousands of checkpoints take milliseconds to parse.
    return msgspec.json.decode(text, type=list[Checkpoint])


def compute_valid_until(status: str, last_sample: int | None, now_ms: int) -> int:
    """Return the time from which the state that is derived from samples may change."""
    if _state(status, last_sample, now_ms) is not JobState.RUNNING or status != SAMPLED or last_sample is None:
        return MAX_TIME_MS
    return last_sample + ALIVE_MS


def _state(status: str, last_sample: int | None, now_ms: int) -> JobState:
    if status != SAMPLED:
        return JobState(status)
    return JobState.RUNNING if last_sample is not None and now_ms - last_sample < ALIVE_MS else JobState.UNKNOWN


def _time(time_ms: int) -> int | None:
    return None if time_ms < 0 else time_ms


def _check_order(start: int | None, end: int | None, field: str) -> None:
    if start is not None and end is not None and end < start:
        raise InvalidRequestError(f"{field} ({format_iso(end)}) is before start ({format_iso(start)})", field)


def _check_length(value: str | None, field: str, most: int) -> str | None:
    if value is None:
        return None
    if len(value) > most:
        raise LimitExceededError(f"{field} may have at most {most} characters, it has {len(value)}", field)
    # PostgreSQL stores no NUL in a text.
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _check_integer(value: int | None, field: str) -> int | None:
    if value is not None and not -_INT64 <= value < _INT64:
        raise InvalidRequestError(f"{field} {value} is not a 64-bit number", field)
    return value


def _json(value: Mapping[str, Any] | None, field: str) -> str | None:
    if value is None:
        return None
    encoded = msgspec.json.encode(value).decode()
    return _check_length(encoded, field, MAX_TEXT)


def _instance_type(value: Mapping[str, Any]) -> InstanceType:
    """Return the instance type of a record; unknown names go into ``extra``."""
    fields = {name: value[name] for name in InstanceType.__struct_fields__ if name in value and name != "extra"}
    extra = {name: part for name, part in value.items() if name not in InstanceType.__struct_fields__}
    inner = value.get("extra", {})
    try:
        return msgspec.convert({**fields, "extra": {**inner, **extra}}, InstanceType)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidRequestError(f"instance_type is invalid: {error}", "instance_type") from error
