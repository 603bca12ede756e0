"""Baseten's call for the data of a chart."""

from jobmeter.dialects.base.view import KEY, View, ViewCall, encode_part, make_target
from jobmeter.dialects.baseten.names import METRICS
from jobmeter.model.time import SECOND

_SHOWN = frozenset(METRICS.values())


def view_call(view: View) -> ViewCall | None:
    """Return the call for the job's metrics; None for a metric that the API lacks."""
    if view.metric.name not in _SHOWN:
        return None
    path = f"/v1/training_projects/{encode_part(view.job.project)}/jobs/{encode_part(view.job.id)}/metrics"
    times = {"start_epoch_millis": view.span.start_ms, "end_epoch_millis": view.span.end_ms}
    return ViewCall(
        operation="get_training_projects_jobs_metrics",
        path=make_target(path, **times, step_seconds=max(view.step_ms // SECOND, 1)),
        header=f"Authorization: Api-Key {KEY}",
        note="With the other metrics of this API.",
    )
