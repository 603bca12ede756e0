"""The call of Realtime Compute for Apache Flink for the data of a chart."""

import msgspec

from jobmeter.dialects.base.view import BEARER, View, ViewCall, encode_part
from jobmeter.model.job import JobState
from jobmeter.model.time import SECOND

_PREFIX = "flink."


def view_call(view: View) -> ViewCall | None:
    """Return GetInstanceMetric for a Flink metric of a running job; None otherwise, because it would fail."""
    if not view.metric.name.startswith(_PREFIX) or view.job.state is not JobState.RUNNING:
        return None
    step = f"{max(view.step_ms // SECOND, 1)}s"
    query = {
        "metric": view.metric.name.removeprefix(_PREFIX),
        "downsample": f"{step}-avg",
        "granularity": step,
        "aggregator": "avg",
        "tags": {"replica": "*"},
    }
    wanted = {"start": view.span.start_ms, "end": view.span.end_ms - 1, "queries": [query]}
    return ViewCall(
        operation="GetInstanceMetric",
        method="POST",
        path=f"/api/v2/projects/{encode_part(view.job.project)}/jobs/{encode_part(view.job.id)}/metric",
        header=BEARER,
        body=msgspec.json.encode({"metricJson": msgspec.json.encode(wanted).decode()}).decode(),
        note="By replica.",
    )
