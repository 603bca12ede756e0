"""Huawei Cloud ModelArts v2: training jobs. Sources and readings: SPEC.md."""

from jobmeter.access.signatures import HUAWEI
from jobmeter.dialects.base import Gap, GapStatus
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.base.view import KEY, View, ViewCall, encode_part
from jobmeter.dialects.modelarts import errors, names
from jobmeter.dialects.modelarts.names import NAME
from jobmeter.dialects.modelarts.operations.catalogs import PROJECTS_PATH

_HEADER = f"X-Auth-Token: {KEY}"
_REPORTED = "app."


def view_call(view: View) -> ViewCall | None:
    """Return ShowTrainingJobMetrics or ShowFtMetrics; None if both lack that metric."""
    base = f"/v2/{encode_part(view.job.project)}/training-jobs/{encode_part(view.job.id)}"
    if view.metric.name.startswith(_REPORTED):
        note = "The whole life of the job: this API takes no range."
        return ViewCall(operation="ShowFtMetrics", path=f"{base}/ft-metrics", header=_HEADER, note=note)
    if NAME not in view.metric.names:
        return None
    task = view.replica or "worker-0"
    note = f"{view.metric.names[NAME]} of {task}, each minute of the job's life: this API takes neither range nor step."
    path = f"{base}/metrics/{encode_part(task)}"
    return ViewCall(operation="ShowTrainingJobMetrics", path=path, header=_HEADER, note=note)


GAPS = (
    Gap(
        "CreateTrainingJob",
        "Jobmeter starts no jobs; `jobmeter run`, an agent or a job record registers one.",
        GapStatus.NEVER,
    ),
    Gap("BatchDeleteTrainingJob", "DeleteTrainingJob deletes one by one."),
    Gap(
        "ShowTrainingJobRoutePlan, ShowTrainingQuotas, ModifyTrainingQuotas",
        "Networks and quotas are those of the vendor's cloud.",
        GapStatus.NEVER,
    ),
    Gap(
        "ShowFtDetail, ListFtArtifacts, PublishFtArtifacts",
        "The assets of the vendor's model gallery exist in its cloud alone.",
        GapStatus.NEVER,
    ),
    Gap(
        "Tags under `/modelarts-training-job`",
        "A job's labels are set by its record; ListTrainingJobs filters by them.",
    ),
    Gap("Training experiments, algorithms, workflows", "Jobmeter stores none of these.", GapStatus.NEVER),
    Gap("ShowPoolMonitor, ShowPoolRuntimeMetrics", "They are about resource pools; this dialect is about jobs."),
    Gap("Jobs of API version 1 (`/v1/{project_id}/training-jobs`)", "The vendor withdrew them.", GapStatus.NEVER),
    Gap(
        "`POST /v3/auth/tokens` of IAM",
        "Jobmeter stores no passwords; the token of `jobmeter key create` is an X-Auth-Token.",
        GapStatus.NEVER,
    ),
    Gap("`X-Language: zh-cn`", "Texts are in English; the header is accepted.", GapStatus.NEVER),
)


_SEGMENTS = 4
"""Fewest segments of a path: ``/v2/{project_id}/...``."""


def _owns(path: str) -> bool:
    """Return True for paths of ModelArts: everything below ``/v2/{project_id}/``."""
    return path == PROJECTS_PATH or (path.startswith("/v2/") and len(path.split("/")) >= _SEGMENTS)


MODELARTS = PathDialect(
    name=names.NAME,
    title="Huawei Cloud ModelArts, API v2",
    schemes=HUAWEI,
    operations=operations_of(f"{__name__}.operations"),
    gaps=GAPS,
    view_call=view_call,
    render=errors.render,
    wrong_method="The method {method} is not allowed here: {allowed}.",
    wrong_path="The path {path} is not found.",
    owns=_owns,
)
