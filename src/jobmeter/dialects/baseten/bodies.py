"""Jobs and projects as Baseten's bodies, with keys in the order of Baseten's documents."""

from collections.abc import Mapping
from typing import Any

from jobmeter.dialects.baseten.names import DEFAULT_STATUS, NAME, STATUS_KEY, STATUSES
from jobmeter.model.job import InstanceType, Job, JobSize, JobView, Project
from jobmeter.model.time import format_iso
from jobmeter.query.defaults import find_creation

_MIB = 1 << 20


def make_job_body(job: Job, size: JobSize) -> dict[str, Any]:
    """Return a ``TrainingJobV1``.

    Unknown fields are null, or 0 or empty if null is not allowed; ``user`` is then absent.
    """
    fields = get_extra(job)
    body = {
        "id": job.id,
        "created_at": format_iso(compute_creation(job)),
        "current_status": find_status(job),
        "error_message": job.error or None,
        "instance_type": make_instance_type(job, size),
        "node_count": max(1, size.replicas),
        "updated_at": format_iso(find_update_time(job)),
        "training_project_id": job.project,
        "training_project": make_summary(job.project),
        "name": job.name or None,
        "checkpoint_sync_status": _text(fields, "checkpoint_sync_status"),
        "priority": _read_integer(fields, "priority") or 0,
        "availability_model": _text(fields, "availability_model") or "dedicated",
    }
    # `truss train view` fails on a null.
    return {**body, "user": {"email": job.user}} if job.user else body


def make_project_body(project: Project, size: JobSize) -> dict[str, Any]:
    """Return a ``TrainingProjectV1``: its id is its name. A project without jobs has the epoch as its creation.

    ``size`` is the size of its newest job.
    """
    latest = project.latest
    moment = 0 if project.created is None else project.created
    changed = moment if latest is None else max(moment, find_update_time(latest))
    return {
        **make_summary(project.name),
        "created_at": format_iso(moment),
        "updated_at": format_iso(changed),
        "team_name": None,
        "latest_job": None if latest is None else make_job_body(latest, size),
    }


def make_summary(project: str) -> dict[str, str]:
    """Return a ``TrainingProjectSummaryV1``."""
    return {"id": project, "name": project}


def get_extra(job: Job) -> Mapping[str, Any]:
    """Return Baseten's own fields in the job's record."""
    return job.extra.get(NAME, {})


def find_status(job: Job) -> str:
    """Return the job's status: the finer one in its record, if it matches the job's state."""
    fields = _text(get_extra(job), STATUS_KEY)
    return fields if fields is not None and STATUSES.get(fields) is job.state else DEFAULT_STATUS[job.state]


def compute_creation(job: Job) -> int:
    """Return the creation of the job: as recorded, else its start, else its last update."""
    moment = find_creation(job)
    return moment if moment is not None else job.updated or 0


def find_update_time(job: Job) -> int:
    """Return the time of the job's last change."""
    times = (job.updated, job.end, job.last_sample, job.start)
    return max((time for time in times if time is not None), default=compute_creation(job))


def compute_size(view: JobView) -> JobSize:
    """Return the size of a job, with its replicas and allocations."""
    devices: dict[tuple[str, str, str], set[str]] = {}
    for one in view.allocations:
        if one.device.startswith("gpu"):
            devices.setdefault((one.replica, one.cluster, one.node), set()).add(one.device)
    gpus = max(map(len, devices.values()), default=0)
    return JobSize(replicas=len({replica.name for replica in view.replicas}), gpus=gpus)


def make_view_body(view: JobView) -> dict[str, Any]:
    """Return a ``TrainingJobV1`` of a job with its replicas."""
    return make_job_body(view.job, compute_size(view))


def make_instance_type(job: Job, size: JobSize) -> dict[str, Any]:
    """Return an ``InstanceTypeV1``, from the record's instance type, else from one replica's limits and allocations."""
    kind = job.instance_type or InstanceType()
    limits, fields = job.limits, kind.extra
    return {
        "id": kind.id or kind.name,
        "name": kind.name or kind.id,
        "memory_limit_mib": _find_first(
            _read_integer(fields, "memory_limit_mib"), _mib(kind.memory), _mib(limits.get("memory.limit")), 0
        ),
        "millicpu_limit": _find_first(
            _read_integer(fields, "millicpu_limit"), _milli(kind.cpu), _milli(limits.get("cpu.limit")), 0
        ),
        "gpu_count": _find_first(kind.gpu_count, size.gpus),
        "gpu_type": kind.gpu_type or None,
        "gpu_memory_limit_mib": _find_first(
            _read_integer(fields, "gpu_memory_limit_mib"), _mib(kind.gpu_memory), _mib(limits.get("gpu.memory.limit"))
        ),
    }


def _find_first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _mib(size: float | None) -> int | None:
    return None if size is None else round(size / _MIB)


def _milli(cores: float | None) -> int | None:
    return None if cores is None else round(cores * 1000)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def _read_integer(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
