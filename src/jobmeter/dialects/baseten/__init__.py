"""Baseten v1: its training API, in the form that ``truss`` and the ``baseten`` SDK use. Sources and gaps: SPEC.md."""

from jobmeter.access.signatures import BEARER
from jobmeter.dialects.base import Gap, GapStatus
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.base.view import KEY, View, ViewCall, encode_part, target
from jobmeter.dialects.baseten import errors, names
from jobmeter.dialects.baseten.names import METRICS
from jobmeter.model.time import SECOND

_SHOWN = frozenset(METRICS.values())


def view_call(view: View) -> ViewCall | None:
    """Return the call for the job's metrics; None for a metric that they lack."""
    if view.metric.name not in _SHOWN:
        return None
    path = f"/v1/training_projects/{encode_part(view.job.project)}/jobs/{encode_part(view.job.id)}/metrics"
    times = {"start_epoch_millis": view.span.start_ms, "end_epoch_millis": view.span.end_ms}
    return ViewCall(
        operation="get_training_projects_jobs_metrics",
        path=target(path, **times, step_seconds=max(view.step_ms // SECOND, 1)),
        header=f"Authorization: Api-Key {KEY}",
        note="With the other metrics of this API.",
    )


_NO_LAUNCHER = "Jobmeter starts no jobs: the system that runs one records it."

GAPS = (
    Gap("`POST .../jobs` (`truss train push`)", _NO_LAUNCHER, GapStatus.NEVER),
    Gap("`POST .../jobs/{training_job_id}/recreate`", _NO_LAUNCHER, GapStatus.NEVER),
    Gap("`GET /v1/blobs/credentials/train`", "Jobmeter stores no uploads.", GapStatus.NEVER),
    Gap(
        "`PATCH .../interactive_sessions/{session_id}`, `POST .../ssh/sign`",
        "Jobmeter opens no sessions on the machines that it measures; `auth_codes` is always empty.",
        GapStatus.NEVER,
    ),
    Gap("`GET` and `PATCH /v1/training/capacity`", "Jobmeter hands out no capacity.", GapStatus.NEVER),
    Gap(
        "`GET /v1/training/jobs/{training_job_id}/queue_context`",
        "The queue belongs to the scheduler that runs the jobs.",
        GapStatus.NEVER,
    ),
    Gap(
        "`POST /v1/teams/{team_id}/training_projects`, `DELETE /v1/training_projects/{training_project_id}`",
        "A project is the project of a key: it has no team, and ends with its jobs.",
        GapStatus.NEVER,
    ),
)


_OWN = frozenset({"training_projects", "training_jobs", "training"})


def _owns(path: str) -> bool:
    """Return True for paths of the training API. Other dialects also have paths below ``/v1/``."""
    parts = path.split("/", 5)
    if len(parts) < 3 or parts[:2] != ["", "v1"]:
        return False
    return parts[2] in _OWN or (parts[2] == "teams" and parts[4:5] == ["training_projects"])


BASETEN = PathDialect(
    name=names.NAME,
    title="Baseten training API, v1",
    schemes=(BEARER,),
    operations=operations_of(f"{__name__}.operations"),
    gaps=GAPS,
    view_call=view_call,
    render=errors.render,
    wrong_method="This path takes {allowed}, not {method}.",
    wrong_path="There is nothing at {path}.",
    owns=_owns,
)
