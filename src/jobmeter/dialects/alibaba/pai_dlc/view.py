"""PAI-DLC's call for the data of a chart."""

from jobmeter.dialects.alibaba.pai_dlc.requests import NAME
from jobmeter.dialects.base.view import BEARER, View, ViewCall, encode_part, make_target
from jobmeter.model.time import SECOND, format_iso


def view_call(view: View) -> ViewCall | None:
    """Return GetJobMetrics for that metric; None if the API has no name for the metric."""
    name = view.metric.names.get(NAME)
    if name is None:
        return None
    step = f"{max(view.step_ms // SECOND, 1)}s"
    times = {"StartTime": format_iso(view.span.start_ms), "EndTime": format_iso(view.span.end_ms)}
    path = make_target(f"/api/v1/jobs/{encode_part(view.job.id)}/metrics", MetricType=name, **times, TimeStep=step)
    return ViewCall(operation="GetJobMetrics", path=path, header=BEARER, note="By replica.")
