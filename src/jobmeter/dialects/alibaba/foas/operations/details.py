"""GetInstanceDetail, GetInstanceConfig, GetInstanceCheckpoint, GetInstanceExceptions and GetInstanceResource.

The vendor forwards the first four from the REST interface of Flink's job manager, each as a JSON text. Here they have
the same form, filled from the job's record, its events and its series; unreported fields are left out.
https://nightlies.apache.org/flink/flink-docs-release-1.20/docs/ops/rest_api/ and the types of the vendor's SDK for Go.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jobmeter.dialects.alibaba.common.listing import drop_empty
from jobmeter.dialects.alibaba.common.operation import Lookup, dump_json
from jobmeter.dialects.alibaba.foas.answers import convert_number, reply
from jobmeter.dialects.alibaba.foas.instances import BATCH, choose_job_type, name_job, read_own_fields
from jobmeter.dialects.alibaba.foas.names import METRICS
from jobmeter.dialects.alibaba.foas.requests import INSTANCE_PATH, InstanceRequest, operation
from jobmeter.dialects.base import Steps, ask, round_up
from jobmeter.errors import NotFoundError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.event import Event, EventFilter, EventSource, EventType, Level
from jobmeter.model.job import Checkpoint, Job, JobState
from jobmeter.model.order import make_natural_key
from jobmeter.model.series import compute_job_key
from jobmeter.model.time import DAY, HOUR, MINUTE, TimeRange
from jobmeter.query.defaults import find_creation, find_end, find_start
from jobmeter.query.group import CapacityQuestion
from jobmeter.query.request import By, GroupRef, JobQuestion, JobRef, MetricQuery, Statistic
from jobmeter.query.series import SeriesQuestion
from jobmeter.query.usage import LIMITS, read_recorded_limit

MOST_EXCEPTIONS, MOST_CHECKPOINTS = 100, 100
STATES: Mapping[JobState, str] = {
    JobState.QUEUED: "CREATED",
    JobState.RUNNING: "RUNNING",
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.STOPPED: "CANCELED",
    JobState.UNKNOWN: "SUSPENDED",
}
"""Flink's word for each of our states."""
_COMPLETED, _RESTARTED = "COMPLETED", "Restarted"
_RECENT_MS = 5 * MINUTE
"""Length of the range for a current state."""
_TOTAL, _DURATION, _SIZE, _STATE_SIZE = (
    METRICS[name] for name in ("checkpoints", "lastCheckpointDuration", "lastCheckpointSize", "state.state_size")
)
_MIB = 2**20


@operation(f"GET {INSTANCE_PATH}/details", "jobs:read", by_resource=True)
class GetInstanceDetail(InstanceRequest, frozen=True):
    """Returns the job in Flink's form: `{Detail, RequestId}`, Detail being the JSON text of `/jobs/:jobid`.

    `{jid, name, state, job-type, start-time, end-time, duration, now, timestamps, vertices: [{id, name, parallelism,
    status}]}`: the vertices are the tasks that its series name.
    """

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        now_ms = self.context.now_ms
        start, end = find_start(job), find_end(job)
        last = now_ms if end is None else end
        question = SeriesQuestion(jobs=(compute_job_key(job.project, job.id),), since_ms=max(0, last - _RECENT_MS))
        found = yield from ask(question)
        state = _state(job)
        detail = {
            "jid": job.id,
            "name": name_job(job),
            "state": state,
            "job-type": "BATCH" if choose_job_type(job) == BATCH else "STREAMING",
            "start-time": start,
            "end-time": -1 if end is None else end,
            "duration": None if start is None else max(0, last - start),
            "now": now_ms,
            "timestamps": _timestamps(job),
            "vertices": _vertices([dict(one.labels) for one in found.series], state),
        }
        return reply(self, "GetInstanceDetail", {"Detail": dump_json(drop_empty(detail))})


@operation(f"GET {INSTANCE_PATH}/config", "jobs:read", by_resource=True)
class GetInstanceConfig(InstanceRequest, frozen=True):
    """Returns the job's configuration: `{Config, RequestId}`, Config being the JSON text of `/jobs/:jobid/config`.

    `{jid, name, execution-config: {job-parallelism, user-config}}`: user-config has the properties with which the job
    was registered, and the parameters with which it was started.
    """

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        parallelism = job.labels.get("flink.parallelism", "")
        execution = {
            "job-parallelism": int(parallelism) if parallelism.isascii() and parallelism.isdigit() else None,
            "user-config": _user_config(read_own_fields(job)),
        }
        config = {"jid": job.id, "name": name_job(job), "execution-config": drop_empty(execution)}
        return reply(self, "GetInstanceConfig", {"Config": dump_json(config)})


@operation(f"GET {INSTANCE_PATH}/checkpoints", "jobs:read", by_resource=True)
class GetInstanceCheckpoint(InstanceRequest, frozen=True):
    """Returns the job's checkpoints: `{Checkpoints, RequestId}`, being the JSON text of `/jobs/:jobid/checkpoints`.

    `{counts: {total}, latest: {completed, savepoint}, history}`. The number of checkpoints and the last one's duration
    and sizes are the last measured ones of the job's last day. History has the checkpoints of the job's record, newest
    first, and replaces missing measurements.
    """

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        measured = yield from _read_last_values(job, (_TOTAL, _DURATION, _SIZE, _STATE_SIZE), self.context.now_ms)
        history = sorted(job.checkpoints, key=lambda one: one.created or 0, reverse=True)
        size = measured.get(_SIZE)
        last = drop_empty(
            {
                "end_to_end_duration": measured.get(_DURATION),
                "checkpointed_size": size,
                "state_size": measured.get(_STATE_SIZE, size),
            }
        )
        latest: dict[str, Any] = {"completed": {"status": _COMPLETED, **last}} if last else {}
        for one in reversed(history):
            kind = "savepoint" if _is_savepoint(one) else "completed"
            if kind == "savepoint" or not last:
                latest[kind] = _checkpoint(one)
        checkpoints = {
            "counts": drop_empty({"total": measured.get(_TOTAL, len(history) or None)}),
            "latest": latest,
            "history": [_checkpoint(one) for one in history[:MOST_CHECKPOINTS]],
        }
        return reply(self, "GetInstanceCheckpoint", {"Checkpoints": dump_json(checkpoints)})


@operation(f"GET {INSTANCE_PATH}/exceptions", "jobs:read", by_resource=True)
class GetInstanceExceptions(InstanceRequest, frozen=True):
    """Returns the job's failures: `{Exceptions, RequestId}`, being the JSON text of `/jobs/:jobid/exceptions`.

    `{root-exception, timestamp, all-exceptions: [{exception, location, timestamp}], truncated}`, newest first, at most
    100; the root is the newest one, or the error of the job's record.
    """

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        question = EventFilter(
            projects=frozenset({job.project}),
            jobs=(job.id,),
            sources=frozenset({EventSource.JOB}),
            levels=frozenset({Level.WARNING, Level.ERROR}),
            types=frozenset({EventType.OTHER}),
            descending=True,
            limit=MOST_EXCEPTIONS,
        )
        page = yield from ask(question)
        found = [event for event in page.events if event.level is Level.ERROR or event.reason == _RESTARTED]
        nodes = yield from _nodes(job, found)
        ended = find_end(job) if job.error else None
        text, time_ms = (found[0].message, found[0].time) if found else (job.error, ended)
        root = drop_empty({"root-exception": text, "timestamp": time_ms})
        exceptions = {
            **root,
            "all-exceptions": [
                drop_empty({"exception": event.message, "location": nodes.get(event.replica), "timestamp": event.time})
                for event in found
            ],
            "truncated": page.total > len(page.events),
        }
        return reply(self, "GetInstanceExceptions", {"Exceptions": dump_json(exceptions)})


@operation(f"GET {INSTANCE_PATH}/resource", "jobs:read", by_resource=True)
class GetInstanceResource(InstanceRequest, frozen=True):
    """Returns the limits of the job's running task managers together, and the size of its queue.

    `{Resource: {AllocatedMB, AllocatedVirtualCores, TotalMB, TotalVirtualCores}, RequestId}`, MB of 2^20 bytes. A queue
    is a resource group.
    """

    def _steps(self) -> Steps:
        job = yield from self.find_instance()
        now_ms = self.context.now_ms
        cpu, memory = yield from _read_limits(job, now_ms)
        fields = {
            "AllocatedMB": None if memory is None else round_up(memory / _MIB),
            "AllocatedVirtualCores": None if cpu is None else round_up(cpu),
            **(yield from _read_queue_size(job, now_ms)),
        }
        return reply(self, "GetInstanceResource", {"Resource": drop_empty(fields)})


def _state(job: Job) -> str:
    """Return Flink's word for the job's state, or the finer word that an unfinished job's label ``flink.state`` has."""
    named = job.labels.get("flink.state", "")
    return named if named and not job.state.finished and named not in STATES.values() else STATES[job.state]


def _timestamps(job: Job) -> dict[str, int]:
    ended = {} if find_end(job) is None else {STATES[job.state]: find_end(job)}
    return drop_empty({"CREATED": find_creation(job), "RUNNING": find_start(job), **ended})


def _vertices(labels: Sequence[Mapping[str, str]], state: str) -> list[dict[str, Any]]:
    """Return the tasks that series name, each with its number of subtasks if series name subtasks."""
    subtasks: dict[str, set[str]] = {}
    for one in labels:
        if task := one.get("task", ""):
            subtasks.setdefault(task, set()).update(filter(None, [one.get("subtask")]))
    return [
        drop_empty({"id": task, "name": task, "parallelism": len(subtasks[task]) or None, "status": state})
        for task in sorted(subtasks, key=make_natural_key)
    ]


def _user_config(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return a job's properties, from lines of ``name=value``, and the parameters of its start."""
    properties = extra.get("Properties")
    lines = properties.splitlines() if isinstance(properties, str) else []
    pairs = (line.strip().partition("=") for line in lines if "=" in line and not line.lstrip().startswith(("#", "!")))
    config = {name.strip(): value.strip() for name, _, value in pairs}
    parameters = extra.get("parameterJson")
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        config[name] = value if isinstance(value, str) else dump_json(value)
    return config


def _read_last_values(job: Job, metrics: tuple[str, ...], now_ms: int) -> Lookup[dict[str, int | float]]:
    """Return the last value of each metric in the last day of the job; missing metrics are left out."""
    end = find_end(job)
    last = now_ms if end is None else min(now_ms, end)
    measured = yield from _measured(job, metrics, TimeRange(max(0, last - DAY), last + 1), Aggregate.MAX)
    return {metric: convert_number(value) for metric, value in measured.items()}


def _measured(job: Job, metrics: tuple[str, ...], span: TimeRange, aggregate: Aggregate) -> Lookup[dict[str, float]]:
    """Return the last value of each metric of the job in a range; missing metrics are left out."""
    result = yield from ask(
        MetricQuery(
            subject=JobRef(job.id, job.project),
            metrics=metrics,
            range=span,
            step_ms=HOUR,
            by=By.JOB,
            statistic=Statistic.LAST,
            aggregate=aggregate,
        )
    )
    return {line.metric: float(line.value[-1]) for line in result.lines}


def _is_savepoint(one: Checkpoint) -> bool:
    return one.type.casefold() == "savepoint"


def _checkpoint(one: Checkpoint) -> dict[str, Any]:
    return drop_empty(
        {
            "id": int(one.id) if one.id.isascii() and one.id.isdigit() else one.id,
            "status": _COMPLETED,
            "is_savepoint": _is_savepoint(one) if one.type else None,
            "trigger_timestamp": one.created,
            "state_size": one.size,
            "external_path": one.files[0] if one.files else None,
        }
    )


def _nodes(job: Job, events: Sequence[Event]) -> Lookup[dict[str, str]]:
    """Return the node of each replica, else the replica's name, if any event names a replica."""
    if not any(event.replica for event in events):
        return {}
    view = yield from ask(JobQuestion(JobRef(job.id, job.project)))
    nodes = {replica.name: replica.node for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    return {event.replica: nodes.get(event.replica) or event.replica for event in events}


def _read_limits(job: Job, now_ms: int) -> Lookup[list[float | None]]:
    """Return the sum of each of ``LIMITS`` over the running replicas: as measured lately, else as recorded."""
    if job.state is not JobState.RUNNING:
        return [0.0, 0.0]
    span = TimeRange(max(0, now_ms - _RECENT_MS), now_ms + 1)
    measured = yield from _measured(job, LIMITS, span, Aggregate.SUM)
    view = yield from ask(JobQuestion(JobRef(job.id, job.project)))
    running = {one.name for one in view.replicas if (one.state or job.state) is JobState.RUNNING and one.end is None}
    found: list[float | None] = []
    for limit in LIMITS:
        each = read_recorded_limit(job, limit)
        found.append(measured.get(limit, None if each is None else each * max(1, len(running))))
    return found


def _read_queue_size(job: Job, now_ms: int) -> Lookup[dict[str, int]]:
    """Return the size of the job's queue, as far as it is known."""
    if not job.resource_group:
        return {}
    span = TimeRange(max(0, now_ms - _RECENT_MS), now_ms)
    try:
        found = yield from ask(CapacityQuestion(group=GroupRef(job.resource_group), range=span))
    except NotFoundError:  # a key that does not see all of the queue
        return {}
    # No machine has no core and no memory: the sizes of such a queue are unknown.
    known = {"TotalMB": round_up(found.memory / _MIB), "TotalVirtualCores": round_up(found.cpu)}
    return {name: value for name, value in known.items() if value}
