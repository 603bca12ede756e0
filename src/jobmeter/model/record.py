"""Job records as received (agents, ``jobmeter import``, ``POST /jobs``): JSON objects, validated field by field.

A record may be partial: absent fields keep their values. All three sources share the schema.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.event import EventSource, Level
from jobmeter.model.job import AllocationSource, JobState
from jobmeter.model.series import MAX_NAME, check_job_id, check_name, check_project
from jobmeter.model.time import DAY, parse_time

T = TypeVar("T")
MAX_REPLICAS = 100_000
_DIALECT = re.compile(r"[a-z0-9_-]{1,64}")
MAX_SHORT_TEXT = 1_024
MAX_TEXT = 65_536
MAX_REASON = 256
MAX_EXTRA_BYTES = 256 * 1024
"""Most bytes of a job's ``extra`` as JSON."""
MAX_EXTRA_KEYS = 16
"""Most keys in a path of a job's ``extra``."""
MAX_CHECKPOINTS = 10_000
MAX_CHECKPOINT_BYTES = 1024 * 1024
"""Most bytes of all checkpoints of a job as JSON."""
MAX_LEASE_OWNER = 64
MAX_LEASE_SECONDS = 86_400


class ReplicaRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Replica as recorded. ``devices`` creates an allocation for each device from ``start`` to ``end``.

    ``pod`` is the name of its pod, ``pod_id`` the pod's uid, or its id in another system.
    """

    name: str
    attempt: int = 0
    rank: int | None = None
    cluster: str = ""
    node: str = ""
    pod_id: str = ""
    pod: str = ""
    state: JobState | None = None
    start: int | str | None = None
    end: int | str | None = None
    exit_code: int | None = None
    reason: str = ""
    devices: list[str] = []


class AllocationRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Allocation as recorded; see ``jobmeter.model.job.Allocation``."""

    replica: str
    node: str
    device: str
    start: int | str
    end: int | str | None = None
    cluster: str = ""
    rank: int | None = None
    source: str = "record"


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Checkpoint as recorded; see ``jobmeter.model.job.Checkpoint``."""

    id: str
    created: int | str | None = None
    type: str = ""
    base_model: str = ""
    size: int | None = None
    files: list[str] = []
    extra: dict[str, Any] = {}


class EventRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Event as recorded; see ``jobmeter.model.event.Event``. An empty ``project`` means the key's own."""

    time: int | str
    project: str = ""
    job: str = ""
    replica: str = ""
    attempt: int = 0
    cluster: str = ""
    node: str = ""
    source: EventSource = EventSource.JOB
    level: Level = Level.INFO
    reason: str = ""
    message: str = ""
    subject: str = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lease of a running job, which protects it from being marked lost for ``seconds`` from receipt.

    ``owner`` is a random name of the run that holds it.
    """

    owner: str
    seconds: int


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Renewal of a job's lease. An empty ``project`` means the key's own."""

    job_id: str
    lease: Lease
    project: str = ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Job as recorded. Times are ISO 8601 text or epoch milliseconds.

    ``checkpoints`` are merged with the stored ones by id. ``extra`` is merged by dialect and key; null removes a key,
    and ``KEY/KEY`` names a key of an object inside (``~1`` stands for a slash, ``~0`` for ``~``). A job whose ``lease``
    is not renewed in time is lost; see ``LeaseRecord``.
    """

    job_id: str
    project: str | None = None
    name: str | None = None
    type: str | None = None
    state: JobState | None = None
    user: str | None = None
    resource_group: str | None = None
    workspace: str | None = None
    created: int | str | None = None
    start: int | str | None = None
    end: int | str | None = None
    error: str | None = None
    exit_code: int | None = None
    command: str | None = None
    instance_type: dict[str, Any] | None = None
    limits: dict[str, float] | None = None
    labels: dict[str, str] | None = None
    checkpoints: list[CheckpointRecord] | None = None
    extra: dict[str, dict[str, Any]] | None = None
    lease: Lease | None = None
    replicas: list[ReplicaRecord | str] = []
    allocations: list[AllocationRecord] = []


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Node as its agent describes it."""

    name: str
    cluster: str = ""
    resource_group: str = ""
    info: dict[str, Any] = {}


class SchedulerRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """State of a cluster's scheduler, reported by ``jobmeter scheduler`` once a minute and on changes.

    ``kind`` is ``slurm``, ``kubernetes`` or ``flink``. ``problem`` tells which job data is missing, and ``since`` from
    what time; empty and None without problems. ``time`` is the time of the report, ``interval_ms`` the polling
    interval.
    """

    kind: str
    cluster: str
    time: int | str
    interval_ms: int
    problem: str = ""
    since: int | str | None = None


class Records(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Content of one frame of records."""

    jobs: list[JobRecord] = []
    nodes: list[NodeRecord] = []
    events: list[EventRecord] = []
    leases: list[LeaseRecord] = []
    schedulers: list[SchedulerRecord] = []

    @property
    def count(self) -> int:
        """Number of records."""
        jobs, nodes, events = len(self.jobs), len(self.nodes), len(self.events)
        return jobs + nodes + events + len(self.leases) + len(self.schedulers)


def decode_record(data: bytes) -> JobRecord:
    """Decode a job record from JSON. Raises InvalidRequestError naming the field that is wrong."""
    return check_record(_decode(data, JobRecord))


def decode_records(data: bytes) -> Records:
    """Decode a ``Records`` object from JSON. Raises InvalidRequestError naming the field that is wrong."""
    return check_records(_decode(data, Records))


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise make_record_error(error) from error


def check_records(records: Records) -> Records:
    """Validate records. Raises InvalidRequestError naming the first invalid field."""
    for job in records.jobs:
        check_record(job)
    for node in records.nodes:
        check_name(node.name, "node")
        if node.cluster:
            check_name(node.cluster, "cluster")
    for event in records.events:
        check_event(event)
    for renewal in records.leases:
        check_job_id(renewal.job_id)
        if renewal.project:
            check_project(renewal.project, "leases.project")
        _check_lease(renewal.lease)
    for scheduler in records.schedulers:
        _check_scheduler(scheduler)
    return records


def check_record(record: JobRecord) -> JobRecord:
    """Validate the names and times of a record. Raises InvalidRequestError naming the first invalid one."""
    check_job_id(record.job_id)
    if record.project is not None:
        check_project(record.project)
    for field in ("created", "start", "end"):
        record_time(getattr(record, field), field)
    if len(record.replicas) > MAX_REPLICAS:
        raise InvalidRequestError(f"a job may have at most {MAX_REPLICAS} replicas", "replicas")
    _check_texts(record)
    _check_checkpoints(record.checkpoints or ())
    _check_extra(record.extra or {})
    for replica in list_replicas(record):
        _check_replica(replica)
    for allocation in record.allocations:
        _check_allocation(allocation)
    if record.limits is not None:
        normalize_limits(record.limits)
    if record.lease is not None:
        _check_lease(record.lease)
    return record


def check_event(event: EventRecord) -> EventRecord:
    """Validate the names, time and texts of an event. Raises InvalidRequestError naming the first invalid one."""
    parse_time(event.time, "events.time")
    if event.project:
        check_project(event.project, "events.project")
    if event.job:
        check_job_id(event.job, "events.job")
    elif event.replica or not event.node:
        raise InvalidRequestError("an event needs a job (optionally a replica) or a node", "events.job")
    for field in ("replica", "cluster", "node"):
        if getattr(event, field):
            check_name(getattr(event, field), f"events.{field}")
    if event.source is EventSource.SERVER:
        raise InvalidRequestError("only the server itself may be the source of such events", "events.source")
    if not 0 <= event.attempt < 2**31:
        raise InvalidRequestError(f"attempt {event.attempt} is not between 0 and 2^31", "events.attempt")
    for field, most in (("reason", MAX_REASON), ("message", MAX_TEXT), ("subject", MAX_REASON)):
        if len(getattr(event, field)) > most:
            raise LimitExceededError(f"{field} may have at most {most} characters", f"events.{field}")
    return event


def list_replicas(record: JobRecord) -> list[ReplicaRecord]:
    """Return the replicas of a record, including those given as a bare name."""
    return [ReplicaRecord(name=entry) if isinstance(entry, str) else entry for entry in record.replicas]


def normalize_limits(limits: dict[str, float]) -> dict[str, float]:
    """Normalise limits by metric name: ``cpu`` means ``cpu.limit``. Raises InvalidRequestError for a negative limit."""
    for name, value in limits.items():
        if not value >= 0:
            raise InvalidRequestError(f"limits.{name} must be 0 or more, got {value}", f"limits.{name}")
    return {name if name.endswith(".limit") else f"{name}.limit": value for name, value in limits.items()}


def record_time(value: int | str | None, field: str) -> int | None:
    """Convert a record's time to epoch milliseconds; None stays None."""
    return None if value is None else parse_time(value, field)


def _check_texts(record: JobRecord) -> None:
    """Check free texts: any characters, bounded length."""
    short = ("name", "type", "user", "resource_group", "workspace")
    for fields, most in ((short, MAX_SHORT_TEXT), (("error", "command"), MAX_TEXT)):
        for field in fields:
            if len(getattr(record, field) or "") > most:
                raise InvalidRequestError(f"{field} may have at most {most} characters", field)


def _check_lease(lease: Lease) -> None:
    if not (0 < len(lease.owner) <= MAX_LEASE_OWNER and lease.owner.isascii() and lease.owner.isprintable()):
        raise InvalidRequestError(
            f"a lease's owner must have 1 to {MAX_LEASE_OWNER} printable characters", "lease.owner"
        )
    if not 1 <= lease.seconds <= MAX_LEASE_SECONDS:
        raise InvalidRequestError(f"a lease must last 1 to {MAX_LEASE_SECONDS} seconds", "lease.seconds")


def _check_scheduler(record: SchedulerRecord) -> None:
    for field in ("kind", "cluster"):
        check_name(getattr(record, field), f"schedulers.{field}")
    parse_time(record.time, "schedulers.time")
    record_time(record.since, "schedulers.since")
    if not 0 < record.interval_ms <= DAY:
        raise InvalidRequestError(f"interval_ms {record.interval_ms} is not from 1 to {DAY}", "schedulers.interval_ms")
    if len(record.problem) > MAX_TEXT:
        raise InvalidRequestError(f"problem may have at most {MAX_TEXT} characters", "schedulers.problem")


def _check_checkpoints(checkpoints: Sequence[CheckpointRecord]) -> None:
    if len(checkpoints) > MAX_CHECKPOINTS:
        raise InvalidRequestError(f"a job may have at most {MAX_CHECKPOINTS} checkpoints", "checkpoints")
    for one in checkpoints:
        if not (0 < len(one.id) <= MAX_SHORT_TEXT and one.id.isprintable()):
            raise InvalidRequestError(
                f"a checkpoint's id must have 1 to {MAX_SHORT_TEXT} printable characters", "checkpoints.id"
            )
        for field in ("type", "base_model"):
            if len(getattr(one, field)) > MAX_SHORT_TEXT:
                raise InvalidRequestError(f"{field} has at most {MAX_SHORT_TEXT} characters", f"checkpoints.{field}")
        if one.size is not None and not 0 <= one.size < 2**63:
            raise InvalidRequestError(f"size {one.size} is not between 0 and 2^63", "checkpoints.size")
        record_time(one.created, "checkpoints.created")
    if len(msgspec.json.encode(checkpoints)) > MAX_CHECKPOINT_BYTES:
        raise LimitExceededError(f"checkpoints may have at most {MAX_CHECKPOINT_BYTES} bytes as JSON", "checkpoints")


def _check_extra(extra: dict[str, dict[str, Any]]) -> None:
    for dialect, values in extra.items():
        if not _DIALECT.fullmatch(dialect):
            raise InvalidRequestError(
                f"extra.{dialect[:MAX_NAME]!r} is not a dialect name: 1 to 64 lower-case letters, digits, _ and -",
                "extra",
            )
        if any(path.count("/") >= MAX_EXTRA_KEYS for path in values):
            raise InvalidRequestError(f"a path in extra.{dialect} may have at most {MAX_EXTRA_KEYS} keys", "extra")
    if len(msgspec.json.encode(extra)) > MAX_EXTRA_BYTES:
        raise LimitExceededError(f"extra may have at most {MAX_EXTRA_BYTES} bytes as JSON", "extra")


def _check_replica(replica: ReplicaRecord) -> None:
    check_name(replica.name, "replicas.name")
    for field in ("cluster", "node", "pod_id"):
        value = getattr(replica, field)
        if value:
            (check_job_id if field == "pod_id" else check_name)(value, f"replicas.{field}")
    if len(replica.pod) > MAX_SHORT_TEXT:
        raise InvalidRequestError(f"replicas.pod may have at most {MAX_SHORT_TEXT} characters", "replicas.pod")
    if not 0 <= replica.attempt < 2**31:
        raise InvalidRequestError(f"attempt {replica.attempt} is not between 0 and 2^31", "replicas.attempt")
    if len(replica.reason) > MAX_TEXT:
        raise InvalidRequestError(f"replicas.reason may have at most {MAX_TEXT} characters", "replicas.reason")
    record_time(replica.start, "replicas.start")
    record_time(replica.end, "replicas.end")
    _check_names(replica.devices, "replicas.devices")


def _check_allocation(allocation: AllocationRecord) -> None:
    _check_names((allocation.replica, allocation.node, allocation.device), "allocations")
    if allocation.cluster:
        check_name(allocation.cluster, "allocations.cluster")
    start = parse_time(allocation.start, "allocations.start")
    end = record_time(allocation.end, "allocations.end")
    if end is not None and end < start:
        raise InvalidRequestError(f"an allocation of {allocation.device} ends before it starts", "allocations.end")
    if allocation.source not in set(AllocationSource):
        allowed = ", ".join(AllocationSource)
        raise InvalidRequestError(
            f"source {allocation.source[:MAX_NAME]!r} is not one of {allowed}", "allocations.source"
        )


def _check_names(names: Sequence[str], field: str) -> None:
    for name in names:
        check_name(name, field)


def make_record_error(error: msgspec.DecodeError | UnicodeDecodeError | RecursionError) -> InvalidRequestError:
    """Build the error of a record that cannot be decoded, with the field if known."""
    # msgspec ends a validation message with "- at `$.jobs[...].start`": the path is the field.
    message = str(error)
    field = message.rpartition("at `$")[2].rstrip("`").lstrip(".") if "at `$" in message else ""
    return InvalidRequestError(f"not a valid record: {message}", field)
