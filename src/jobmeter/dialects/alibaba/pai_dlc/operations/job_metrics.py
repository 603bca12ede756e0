"""GetJobMetrics.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics
"""

from jobmeter.dialects.alibaba.common.operation import (
    Arguments,
    answer,
    in_query,
    in_their_unit,
    listed,
    member_name,
    operation,
    pod_ids,
)
from jobmeter.dialects.alibaba.pai_dlc.names import METRICS
from jobmeter.dialects.alibaba.pai_dlc.operations.common import JOB, TIME, TOKEN
from jobmeter.dialects.base import Steps, execute
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import HOUR, MINUTE
from jobmeter.query.request import By, JobQuestion, JobRef, Line, MetricQuery

DEFAULT_STEP_MS = 5 * MINUTE


@operation(
    "GET /api/v1/jobs/{JobId}/metrics",
    "metrics:read",
    JOB,
    in_query("MetricType", f"One of {listed(METRICS)}.", required=True),
    in_query("StartTime", f"{TIME} Default: one hour ago."),
    in_query("EndTime", f"{TIME} Default: now. Not included."),
    in_query("TimeStep", "`30s`, `5m`, `1h`; a bare number counts minutes. Default: `5m`."),
    TOKEN,
    by_resource=True,
)
def get_job_metrics(arguments: Arguments) -> Steps:
    """Returns one metric of a job, a line for each pod: `{JobId, PodMetrics: [{PodId, Metrics}], RequestId}`.

    A member of Metrics is `{Time, Value}`. `Time` is the start of the step in milliseconds. Utilisations are percent
    (above 100 if the usage exceeds the limit), rates MB/s (10^6 bytes), none below 0. A GPU metric of a pod joins its
    devices. Steps without samples and pods without any are absent.
    """
    job = JobRef(arguments.required("JobId"))
    metric = METRICS.get(metric_type := arguments.required("MetricType"))
    if metric is None:
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {', '.join(METRICS)}", "MetricType")
    result = yield from execute(
        MetricQuery(
            subject=job,
            metrics=(metric.name,),
            range=arguments.time_range(HOUR),
            step_ms=arguments.step("TimeStep", DEFAULT_STEP_MS, MINUTE),
            by=By.REPLICA,
        )
    )
    view = yield from execute(JobQuestion(job))
    pods = pod_ids(view)
    members = [
        {"PodId": pods.get(line.replica) or f"{view.job.id}-{member_name(line)}", "Metrics": _points(line)}
        for line in result.lines
    ]
    return answer({"JobId": view.job.id, "PodMetrics": members}, arguments)


def _points(line: Line) -> list[dict[str, float]]:
    values = in_their_unit(line)
    return [{"Time": time, "Value": value} for time, value in zip(line.time.tolist(), values, strict=True)]
