"""CreateJob, UpdateJob, StopJob and DeleteJob: Jobmeter records a job that another system runs."""

import re
import string
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_body, listed, missing, operation
from jobmeter.dialects.alibaba.pai_dlc import specs
from jobmeter.dialects.alibaba.pai_dlc.filters import sums
from jobmeter.dialects.alibaba.pai_dlc.items import STORED_FIELDS, own
from jobmeter.dialects.alibaba.pai_dlc.names import NAME
from jobmeter.dialects.alibaba.pai_dlc.operations.common import JOB, job_view
from jobmeter.dialects.base import Context, DeleteJob, RecordJobs, Steps, StopJob, execute
from jobmeter.errors import ConflictError, InvalidRequestError
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, Records, ReplicaRecord
from jobmeter.query.request import JobRef

JOB_TYPES = (
    *("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "OneFlowJob", "ElasticBatchJob"),
    *("SlurmJob", "RayJob", "DataJuicerJob"),
)
MAX_BODY = 4 << 20
_EXTRA_FIELDS = (
    *("CustomEnvs", "DebuggerConfigContent", "Description", "JobMaxRunningTimeMinutes", "Options"),
    *("SuccessPolicy", "TemplateId", "TemplateVersion"),
)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_DIGITS = string.digits + string.ascii_lowercase


class _Body(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The fields of a request that are read; the others are stored unchanged."""

    display_name: str | None = None
    job_type: str | None = None
    user_command: str | None = None
    job_specs: list[specs.JobSpec] | None = None
    workspace_id: str | None = None
    resource_id: str | None = None
    accessibility: str | None = None
    description: str | None = None
    priority: int | None = None
    job_max_running_time_minutes: int | None = None
    envs: dict[str, str] | None = None
    settings: dict[str, Any] | None = None


@operation(
    "POST /api/v1/jobs",
    "jobs:write",
    in_body("DisplayName", "1 to 256 letters, digits, underscores, periods and hyphens.", required=True),
    in_body("JobType", f"One of {listed(JOB_TYPES)}.", required=True),
    in_body("UserCommand", "What the pods run.", required=True),
    in_body(
        "JobSpecs",
        f"The roles: `Type`, `PodCount` (at most {specs.MAX_PODS} pods in all), `ResourceConfig`, `EcsSpec`, "
        "`Image`, ... Pods are named `<JobId>-worker-0`. The job's limits are those of the largest role.",
        required=True,
    ),
    in_body("WorkspaceId", "The workspace."),
    in_body("ResourceId", "The resource group."),
    in_body("Priority", "1 to 9. Default: 1."),
    in_body("Accessibility", "`PUBLIC` or `PRIVATE`; it is stored, but keys decide who sees the job."),
    in_body("Settings", "Its `Tags` are the job's labels."),
    in_body(
        ", ".join(sorted({*STORED_FIELDS, *_EXTRA_FIELDS} - {"JobSpecs", "Priority", "Accessibility", "Settings"})),
        "Kept, and given back word for word.",
    ),
    body_bytes=MAX_BODY,
)
def create_job(arguments: Arguments) -> Steps:
    """Registers a job, queued, for the caller's project: `{JobId, RequestId}`.

    Jobmeter runs nothing: the system that runs the job reports its pods, its states and its samples under this id.
    """
    body, raw = arguments.body(_Body), arguments.body(dict[str, Any])
    _check_names(body)
    roles = specs.checked(body.job_specs)
    _check_choices(body)
    job = new_id(arguments.context)
    stored = {name: raw[name] for name in (*STORED_FIELDS, *_EXTRA_FIELDS) if raw.get(name) not in (None, [], {})}
    record = JobRecord(
        job_id=job,
        name=body.display_name,
        type=body.job_type,
        state=JobState.QUEUED,
        user=arguments.context.caller or None,
        resource_group=body.resource_id or None,
        workspace=body.workspace_id or None,
        created=arguments.context.now_ms,
        command=body.user_command,
        instance_type=specs.instance_type(roles) or None,
        limits=specs.limits(roles) or None,
        labels=_labels(body.settings or {}) or None,
        extra={NAME: {"Priority": 1, **stored, **_search_keys(body, roles)}},
        replicas=[ReplicaRecord(name=name, state=JobState.QUEUED) for name in specs.pod_names(roles)],
    )
    yield from execute(RecordJobs(Records(jobs=[record])))
    return answer({"JobId": job}, arguments)


@operation(
    "PUT /api/v1/jobs/{JobId}",
    "jobs:write",
    JOB,
    in_body("Priority", "1 to 9."),
    in_body("Accessibility", "`PUBLIC`: it can only be widened."),
    in_body("Description", "A text."),
    in_body("JobSpecs", "All roles, as in CreateJob; pods that are new are added, none are removed."),
    in_body("UserCommand", "What the pods run."),
    body_bytes=MAX_BODY,
)
def update_job(arguments: Arguments) -> Steps:
    """Changes a job's record: `{JobId, RequestId}`. Omitted fields stay unchanged."""
    body, raw = arguments.body(_Body), arguments.body(dict[str, Any])
    roles = specs.checked(body.job_specs) if body.job_specs else []
    _check_choices(body)
    view = yield from job_view(arguments)
    if body.accessibility == "PRIVATE" and own(view.job).get("Accessibility") == "PUBLIC":
        raise InvalidRequestError("Accessibility can only be widened, from PRIVATE to PUBLIC", "Accessibility")
    changed = {
        name: raw[name]
        for name in ("Accessibility", "Description", "JobSpecs", "Priority")
        if raw.get(name) not in (None, [])
    }
    existing = {replica.name for replica in view.replicas}
    added = [name for name in specs.pod_names(roles) if name not in existing]
    record = JobRecord(
        job_id=view.job.id,
        project=view.job.project,
        command=body.user_command or None,
        instance_type=specs.instance_type(roles) or None if roles else None,
        limits=specs.limits(roles) or None if roles else None,
        extra={NAME: {**changed, **({"Images": _images(roles), **sums(specs.totals(roles))} if roles else {})}},
        replicas=[ReplicaRecord(name=name, state=JobState.QUEUED) for name in added],
    )
    yield from execute(RecordJobs(Records(jobs=[record])))
    return answer({"JobId": view.job.id}, arguments)


@operation("POST /api/v1/jobs/{JobId}/stop", "jobs:write", JOB)
def stop_job(arguments: Arguments) -> Steps:
    """Records that a job was stopped now, with an event for the system that runs it: `{JobId, RequestId}`.

    Jobmeter does not end its processes. A job that has already ended is a conflict.
    """
    job = yield from execute(StopJob(JobRef(arguments.required("JobId"))))
    return answer({"JobId": job.id}, arguments)


@operation("DELETE /api/v1/jobs/{JobId}", "jobs:delete", JOB)
def delete_job(arguments: Arguments) -> Steps:
    """Deletes a job that has ended, with its samples, logs and events: `{JobId, RequestId}`.

    It takes a key of role admin. A job that has not ended is a conflict.
    """
    view = yield from job_view(arguments)
    if not view.job.state.finished:
        raise ConflictError(f"Job {view.job.id} has not ended: stop it before it is deleted.")
    job = yield from execute(DeleteJob(JobRef(view.job.id, view.job.project)))
    return answer({"JobId": job.id}, arguments)


def new_id(context: Context) -> str:
    """Return an id in the vendor's form: ``dlc`` and 13 digits and lower-case letters.

    It is as unique as the request's id.
    """
    number = int.from_bytes(blake2b(context.request_id.encode(), digest_size=16).digest())
    letters = []
    for _ in range(13):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "dlc" + "".join(letters)


def _check_names(body: _Body) -> None:
    for name, value in (
        ("DisplayName", body.display_name),
        ("JobType", body.job_type),
        ("UserCommand", body.user_command),
    ):
        if not value:
            raise missing(name)
    if not _NAME.fullmatch(body.display_name or ""):
        raise InvalidRequestError(
            "DisplayName must be 1 to 256 letters, digits, underscores, periods and hyphens", "DisplayName"
        )
    if body.job_type not in JOB_TYPES:
        raise InvalidRequestError(
            f"JobType {(body.job_type or '')[:64]!r} is not one of {', '.join(JOB_TYPES)}", "JobType"
        )


def _check_choices(body: _Body) -> None:
    if body.priority is not None and not 1 <= body.priority <= 9:
        raise InvalidRequestError(f"Priority {body.priority} is not a whole number from 1 to 9", "Priority")
    if body.accessibility not in {None, "", "PUBLIC", "PRIVATE"}:
        raise InvalidRequestError("Accessibility is not one of PUBLIC, PRIVATE", "Accessibility")
    if (body.job_max_running_time_minutes or 0) < 0:
        raise InvalidRequestError("JobMaxRunningTimeMinutes must not be below 0", "JobMaxRunningTimeMinutes")


def _labels(settings: Mapping[str, Any]) -> dict[str, str]:
    tags = settings.get("Tags") or {}
    try:
        return msgspec.convert(tags, dict[str, str])
    except msgspec.ValidationError as error:
        raise InvalidRequestError("Settings.Tags is not an object of texts", "Settings.Tags") from error


def _images(roles: list[specs.JobSpec]) -> list[str]:
    return sorted({role.image for role in roles if role.image})


def _search_keys(body: _Body, roles: list[specs.JobSpec]) -> dict[str, Any]:
    """Return copies of nested fields, stored in the job's record so that ListJobs can filter by them."""
    settings = body.settings or {}
    oversold = settings.get("OversoldType")
    spot = any(role.use_spot_instance or _is_spot(role.spot_spec or {}) for role in roles)
    fixed = any((role.assign_node_spec or {}).get("EnableAssignNode") for role in roles)
    found = {
        "Images": _images(roles),
        "PaymentType": "Spot" if spot else "PrePaid" if body.resource_id else "PostPaid",
        "EnableAssignNode": "true" if fixed else "false",
        "OversoldInfo": f"{oversold}-false" if oversold == "AcceptQuotaOverSold" else oversold,
        **{name: settings.get(name) for name in ("BusinessUserId", "Caller", "PipelineId")},
    }
    return {**{name: value for name, value in found.items() if value}, **sums(specs.totals(roles))}


def _is_spot(spec: Mapping[str, Any]) -> bool:
    return spec.get("SpotStrategy", "NoSpot") not in {None, "", "NoSpot"}
