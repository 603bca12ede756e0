"""A job in ModelArts' form: measured fields, and fields that its record stores verbatim.

``Job.extra["modelarts"]`` may hold these parts (``PARTS``). In ``metadata`` and ``status`` Jobmeter's fields take
precedence. The other parts describe the request, and there the record takes precedence.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from jobmeter.dialects.modelarts.flavors import choose_flavor_type, make_flavor_info
from jobmeter.dialects.modelarts.names import LOST_PHASE, NAME, PHASES
from jobmeter.dialects.modelarts.requests import ONLY_TASK, list_tasks
from jobmeter.model.job import LOST, Job, JobState, JobView, Replica
from jobmeter.model.order import make_natural_key
from jobmeter.model.time import SECOND
from jobmeter.query.defaults import find_creation, find_end

PARTS = ("kind", "metadata", "status", "algorithm", "tasks", "spec", "endpoints", "ftjob_config")
DEFAULT_WORKSPACE = "0"


def get_extra(job: Job) -> Mapping[str, Any]:
    """Return the fields of the job's record for this dialect."""
    return job.extra.get(NAME, {})


def make_job_body(view: JobView, now_ms: int, hosts: Sequence[str] = ()) -> dict[str, Any]:
    """Return the job, without unknown fields. With ``hosts`` the body names the job's tasks on those nodes."""
    job = view.job
    brought: dict[str, Any] = {part: value for part, value in get_extra(job).items() if part in PARTS}
    own = {"metadata": _metadata(job), "status": _status(view, now_ms)}
    described: dict[str, Any] = {"kind": "job", **_part("algorithm", _algorithm(job)), **_part("spec", _spec(view))}
    whole = merge_objects(described, merge_objects(brought, own))
    if hosts:
        whole["status"]["task_ips"] = [make_task_body(one) for one in list_attempts(view) if one.node in hosts]
    return {part: whole[part] for part in PARTS if part in whole}


def list_attempts(view: JobView) -> list[Replica]:
    """Return every attempt of every task, in order. A job without known replicas has one task."""
    if not view.replicas:
        nodes = {one.node for one in view.allocations}
        return [Replica(name=ONLY_TASK, node=nodes.pop() if len(nodes) == 1 else "")]
    return sorted(view.replicas, key=lambda one: (make_natural_key(one.name), one.attempt))


def make_task_body(replica: Replica) -> dict[str, Any]:
    """Return one attempt of a task, and its node."""
    host = {"host_ip": replica.node} if replica.node else {}
    return {"task": replica.name, **host, "schedule_count": replica.attempt + 1}


def merge_objects(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge both, object by object; ``over`` takes precedence."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = merge_objects(below, value)
        else:
            result[key] = value
    return result


def _part(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {name: value} if value else {}


def _metadata(job: Job) -> dict[str, Any]:
    metadata: dict[str, Any] = {"id": job.id, "name": job.name or job.id}
    metadata["workspace_id"] = job.workspace or DEFAULT_WORKSPACE
    if "description" in get_extra(job):
        metadata["description"] = get_extra(job)["description"]
    created = find_creation(job)
    if created is not None:
        metadata["create_time"] = created
    if job.user:
        metadata["user_name"] = job.user
    return metadata


def _status(view: JobView, now_ms: int) -> dict[str, Any]:
    job = view.job
    phase, secondary = PHASES[job.state]
    if job.state is JobState.FAILED and job.error == LOST:
        secondary = LOST_PHASE
    tasks = list_tasks(view)
    status: dict[str, Any] = {"phase": phase, "secondary_phase": secondary}
    start, end = find_start(job), find_end(job)
    if start is not None:
        until = now_ms if end is None else end
        status["duration"] = max(until - start, 0)
        status["start_time"] = start
        if view.replicas:
            status["node_count_metrics"] = [[start, len(tasks)], *([] if end is None else [[end, 0]])]
    status["tasks"] = tasks
    ended = _task_statuses(view.replicas)
    if ended:
        status["task_statuses"] = ended
    records = _describe_attempts(view)
    if records:
        status["running_records"] = records
    return status


def find_start(job: Job) -> int | None:
    """Return the start of the job in epoch milliseconds; None while it waits."""
    return job.start if job.start is not None else job.first_sample


def _task_statuses(replicas: Sequence[Replica]) -> list[dict[str, Any]]:
    """Return the last attempt of each task that has ended."""
    newest = {replica.name: replica for replica in sorted(replicas, key=lambda one: one.attempt)}
    return [
        {"task": name, **_exit(newest[name])}
        for name in sorted(newest, key=make_natural_key)
        if newest[name].exit_code is not None or (newest[name].state or JobState.RUNNING).finished
    ]


def _exit(replica: Replica) -> dict[str, Any]:
    code = {} if replica.exit_code is None else {"exit_code": replica.exit_code}
    return {**code, "message": replica.reason}


def _describe_attempts(view: JobView) -> list[dict[str, Any]]:
    """Return a record for each attempt with a known start."""
    records: list[dict[str, Any]] = []
    places: dict[str, tuple[str, str]] = {}
    ordered = sorted(view.replicas, key=lambda one: one.attempt)
    for attempt, group in groupby(ordered, key=lambda one: one.attempt):
        replicas = sorted(group, key=lambda one: make_natural_key(one.name))
        stayed = attempt > 0 and all(places.get(one.name) == (one.node, one.pod_id) for one in replicas)
        places.update({one.name: (one.node, one.pod_id) for one in replicas})
        record = _describe_attempt(replicas)
        if record:
            records.append({**record, "start_type": "restarted" if stayed else "init_or_rescheduled"})
    return records


def _describe_attempt(replicas: Sequence[Replica]) -> dict[str, Any]:
    starts = [one.start for one in replicas if one.start is not None]
    # A replica with samples alone ends at the last of them, though it may have run longer.
    ends = [one.end for one in replicas if one.end is not None and one.state is not JobState.RUNNING]
    if not starts:
        return {}
    record: dict[str, Any] = {"start_at": min(starts) // SECOND}
    if len(ends) == len(replicas):
        record["end_at"] = max(ends) // SECOND
    failed = [one for one in replicas if one.exit_code or one.state is JobState.FAILED]
    if failed:
        first = min(failed, key=lambda one: one.end or 0)
        record["end_reason"] = first.reason or f"exit code {first.exit_code}"
        record["end_related_task"] = first.name
    return record


def _algorithm(job: Job) -> dict[str, Any]:
    named = get_extra(job).get("algorithm_name")
    return {**({"name": named} if named else {}), **({"command": job.command} if job.command else {})}


def _spec(view: JobView) -> dict[str, Any]:
    job = view.job
    resource: dict[str, Any] = {}
    if job.instance_type is not None:
        kind = job.instance_type
        resource["flavor_id"] = kind.id or kind.name
        resource["flavor_name"] = kind.name or kind.id
        resource["flavor_detail"] = {"flavor_type": choose_flavor_type(kind), "flavor_info": make_flavor_info(kind)}
    if view.replicas:
        resource["node_count"] = len(list_tasks(view))
    if job.resource_group:
        resource["pool_id"] = job.resource_group
    return {"resource": resource} if resource else {}
