"""CreateJob, UpdateJob, StopJob and DeleteJob: Jobmeter records a job that another system runs."""

import re
import string
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, json_operation, operation, read_json
from jobmeter.dialects.alibaba.pai_dlc import specs
from jobmeter.dialects.alibaba.pai_dlc.items import STORED_FIELDS, read_own_fields
from jobmeter.dialects.alibaba.pai_dlc.operations.job_list import sum_requests
from jobmeter.dialects.alibaba.pai_dlc.requests import NAME, DlcJobRequest, find_job_view
from jobmeter.dialects.base import Context, DeleteJob, RecordJobs, Steps, StopJob, ask
from jobmeter.dialects.base.request import Choice
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


Priority = Annotated[int | None, "1, the default, is the lowest.", Meta(ge=1, le=9)]


@json_operation("POST /api/v1/jobs", "jobs:write", body_bytes=MAX_BODY)
class CreateJob(AlibabaRequest, frozen=True, kw_only=True):
    """Registers a job, queued, for the caller's project: `{JobId, RequestId}`.

    Jobmeter runs nothing: the system that runs the job reports its pods, its states and its samples under this id.
    Further fields of the vendor are stored and returned unchanged.
    """

    display_name: Annotated[str, "1 to 256 letters, digits, underscores, periods and hyphens."]
    job_type: Annotated[str, Choice(JOB_TYPES, exact=True)]
    user_command: Annotated[str, "The command of the pods."]
    job_specs: Annotated[
        list[specs.JobSpec],
        f"The roles: `Type`, `PodCount` (at most {specs.MAX_PODS} pods in all), `ResourceConfig`, "
        "`EcsSpec`, `Image`, ... Pods are named `<JobId>-worker-0`. The job has the limits of its largest role.",
    ]
    workspace_id: Annotated[str, "The workspace."] = ""
    resource_id: Annotated[str, "The resource group."] = ""
    accessibility: Annotated[str, "`PUBLIC` or `PRIVATE`; it is stored, but keys decide who sees the job."] = ""
    priority: Priority = None
    description: Annotated[str, "A text."] = ""
    job_max_running_time_minutes: Annotated[int | None, "Minutes.", Meta(ge=0)] = None
    envs: Annotated[dict[str, str], "Environment variables."] = field(default_factory=dict)
    settings: Annotated[dict[str, Any], "Its `Tags` are the job's labels."] = field(default_factory=dict)

    def _steps(self) -> Steps:
        raw, caller = read_json(self.call), self.context.caller
        if not _NAME.fullmatch(self.display_name):
            raise InvalidRequestError(
                "DisplayName must be 1 to 256 letters, digits, underscores, periods and hyphens", "DisplayName"
            )
        roles = specs.check_specs(self.job_specs)
        _check_accessibility(self.accessibility)
        job = make_job_id(self.context)
        stored = {name: raw[name] for name in (*STORED_FIELDS, *_EXTRA_FIELDS) if raw.get(name) not in (None, [], {})}
        record = JobRecord(
            job_id=job,
            name=self.display_name,
            type=self.job_type,
            state=JobState.QUEUED,
            user=caller or None,
            resource_group=self.resource_id or None,
            workspace=self.workspace_id or None,
            created=self.context.now_ms,
            command=self.user_command,
            instance_type=specs.make_instance_type(roles) or None,
            limits=specs.make_limits(roles) or None,
            labels=_labels(self.settings) or None,
            extra={NAME: {"Priority": 1, **stored, **_search_keys(self.settings, self.resource_id, roles)}},
            replicas=[ReplicaRecord(name=name, state=JobState.QUEUED) for name in specs.iterate_pod_names(roles)],
        )
        yield from ask(RecordJobs(Records(jobs=[record])))
        return answer({"JobId": job}, self)


@json_operation("PUT /api/v1/jobs/{JobId}", "jobs:write", body_bytes=MAX_BODY)
class UpdateJob(AlibabaRequest, frozen=True, kw_only=True):
    """Changes a job's record: `{JobId, RequestId}`. Omitted fields stay unchanged."""

    job_id: Annotated[str, "The job."]
    priority: Priority = None
    accessibility: Annotated[str, "`PUBLIC`: it can only be widened."] = ""
    description: Annotated[str, "A text."] = ""
    job_specs: Annotated[
        list[specs.JobSpec] | None,
        "All roles, as in CreateJob; pods that are new are added, none are removed.",
    ] = None
    user_command: Annotated[str, "The command of the pods."] = ""

    def _steps(self) -> Steps:
        raw = read_json(self.call)
        roles = specs.check_specs(self.job_specs) if self.job_specs else []
        _check_accessibility(self.accessibility)
        view = yield from find_job_view(self.job_id)
        if self.accessibility == "PRIVATE" and read_own_fields(view.job).get("Accessibility") == "PUBLIC":
            raise InvalidRequestError("Accessibility can only be widened, from PRIVATE to PUBLIC", "Accessibility")
        changed = {
            name: raw[name]
            for name in ("Accessibility", "Description", "JobSpecs", "Priority")
            if raw.get(name) not in (None, [])
        }
        existing = {replica.name for replica in view.replicas}
        added = [name for name in specs.iterate_pod_names(roles) if name not in existing]
        record = JobRecord(
            job_id=view.job.id,
            project=view.job.project,
            command=self.user_command or None,
            instance_type=specs.make_instance_type(roles) or None if roles else None,
            limits=specs.make_limits(roles) or None if roles else None,
            extra={
                NAME: {
                    **changed,
                    **({"Images": _images(roles), **sum_requests(specs.sum_specs(roles))} if roles else {}),
                }
            },
            replicas=[ReplicaRecord(name=name, state=JobState.QUEUED) for name in added],
        )
        yield from ask(RecordJobs(Records(jobs=[record])))
        return answer({"JobId": view.job.id}, self)


@operation("POST /api/v1/jobs/{JobId}/stop", "jobs:write", name="StopJob")
class StopRequest(DlcJobRequest, frozen=True, kw_only=True):
    """Records that a job was stopped now, with an event for the system that runs it: `{JobId, RequestId}`.

    Jobmeter does not end its processes. A job that has already ended is a conflict.
    """

    def _steps(self) -> Steps:
        job = yield from ask(StopJob(self.ref))
        return answer({"JobId": job.id}, self)


@operation("DELETE /api/v1/jobs/{JobId}", "jobs:delete", name="DeleteJob")
class DeleteRequest(DlcJobRequest, frozen=True, kw_only=True):
    """Deletes a job that has ended, with its samples, logs and events: `{JobId, RequestId}`.

    The call needs a key of role admin. A job that has not ended is a conflict.
    """

    def _steps(self) -> Steps:
        view = yield from self.find_view()
        if not view.job.state.finished:
            raise ConflictError(f"Job {view.job.id} has not ended: stop it before it is deleted.")
        job = yield from ask(DeleteJob(JobRef(view.job.id, view.job.project)))
        return answer({"JobId": job.id}, self)


def make_job_id(context: Context) -> str:
    """Return an id in the vendor's form: ``dlc`` and 13 digits and lower-case letters.

    The id is as unique as the request's id.
    """
    number = int.from_bytes(blake2b(context.request_id.encode(), digest_size=16).digest())
    letters = []
    for _ in range(13):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "dlc" + "".join(letters)


def _check_accessibility(word: str) -> None:
    if word not in {"", "PUBLIC", "PRIVATE"}:
        raise InvalidRequestError("Accessibility is not one of PUBLIC, PRIVATE", "Accessibility")


def _labels(settings: Mapping[str, Any]) -> dict[str, str]:
    tags = settings.get("Tags") or {}
    try:
        return msgspec.convert(tags, dict[str, str])
    except msgspec.ValidationError as error:
        raise InvalidRequestError("Settings.Tags is not an object of texts", "Settings.Tags") from error


def _images(roles: list[specs.JobSpec]) -> list[str]:
    return sorted({role.image for role in roles if role.image})


def _search_keys(settings: Mapping[str, Any], group: str, roles: list[specs.JobSpec]) -> dict[str, Any]:
    """Return copies of nested fields, stored in the job's record so that ListJobs can filter by them."""
    oversold = settings.get("OversoldType")
    spot = any(role.use_spot_instance or _is_spot(role.spot_spec or {}) for role in roles)
    fixed = any((role.assign_node_spec or {}).get("EnableAssignNode") for role in roles)
    found = {
        "Images": _images(roles),
        "PaymentType": "Spot" if spot else "PrePaid" if group else "PostPaid",
        "EnableAssignNode": "true" if fixed else "false",
        "OversoldInfo": f"{oversold}-false" if oversold == "AcceptQuotaOverSold" else oversold,
        **{name: settings.get(name) for name in ("BusinessUserId", "Caller", "PipelineId")},
    }
    return {**{name: value for name, value in found.items() if value}, **sum_requests(specs.sum_specs(roles))}


def _is_spot(spec: Mapping[str, Any]) -> bool:
    return spec.get("SpotStrategy", "NoSpot") not in {None, "", "NoSpot"}
