"""ModelArts' call for the data of a chart."""

from jobmeter.dialects.base.view import KEY, View, ViewCall, encode_part
from jobmeter.dialects.modelarts.names import NAME

_HEADER = f"X-Auth-Token: {KEY}"
_REPORTED = "app."


def view_call(view: View) -> ViewCall | None:
    """Return ShowTrainingJobMetrics or ShowFtMetrics; None if both lack the metric."""
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
