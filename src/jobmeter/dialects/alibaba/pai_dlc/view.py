"""PAI-DLC's call for the data of a chart."""

from jobmeter.dialects.alibaba.pai_dlc.requests import NAME
from jobmeter.dialects.base.view import BEARER, View, ViewCall, encode_part, target
from jobmeter.model.time import SECOND, iso


def view_call(view: View) -> ViewCall | None:
    """Return GetJobMetrics for that metric; None if it has no name for it."""
    name = view.metric.names.get(NAME)
    if name is None:
        return None
    step = f"{max(view.step_ms // SECOND, 1)}s"
    times = {"StartTime": iso(view.span.start_ms), "EndTime": iso(view.span.end_ms)}
    path = target(f"/api/v1/jobs/{encode_part(view.job.id)}/metrics", MetricType=name, **times, TimeStep=step)
    return ViewCall(operation="GetJobMetrics", path=path, header=BEARER, note="By replica.")
