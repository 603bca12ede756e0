"""PaiStudio's call for the data of a chart."""

from jobmeter.dialects.alibaba.pai_studio.names import INSTANCE_METRICS
from jobmeter.dialects.base.view import BEARER, View, ViewCall, encode_part, make_target
from jobmeter.model.time import SECOND, format_iso

_NAMES = {metric.name: name for name, metric in INSTANCE_METRICS.items()}
_REPORTED = "app."


def view_call(view: View) -> ViewCall | None:
    """Return the call for the metrics of the training job, by instance or as its program reported them.

    Returns None if the API has no name for the metric.
    """
    base = f"/api/v1/trainingjobs/{encode_part(view.job.id)}"
    times = {"StartTime": format_iso(view.span.start_ms), "EndTime": format_iso(view.span.end_ms)}
    if view.metric.name.startswith(_REPORTED):
        path = make_target(f"{base}/metrics", Name=view.metric.name.removeprefix(_REPORTED), **times)
        return ViewCall(operation="ListTrainingJobMetrics", path=path, header=BEARER, note="Every report, in pages.")
    name = _NAMES.get(view.metric.name)
    if name is None:
        return None
    step = f"{max(view.step_ms // SECOND, 1)}s"
    path = make_target(f"{base}/instancemetrics", MetricType=name, **times, TimeStep=step)
    return ViewCall(operation="ListTrainingJobInstanceMetrics", path=path, header=BEARER, note="By replica.")
