"""GetJobMetrics.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics
"""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, in_their_unit, member_name, requested_range
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_dlc.names import METRICS
from jobmeter.dialects.pai_dlc.times import TIME
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import HOUR, MINUTE
from jobmeter.query.request import By, JobQuestion, JobRef, Line, MetricQuery

DEFAULT_STEP_MS = 5 * MINUTE


def get_job_metrics(call: Call, context: Context) -> Steps:
    """One metric by replica, under the pod ids that the job's record gives its replicas."""
    arguments = Arguments(call, context)
    job = JobRef(arguments.required("JobId"))
    metric = METRICS.get(metric_type := arguments.required("MetricType"))
    if metric is None:
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {', '.join(METRICS)}", "MetricType")
    result = yield from execute(
        MetricQuery(
            subject=job,
            metrics=(metric.name,),
            range=requested_range(arguments, context.now_ms, HOUR),
            step_ms=arguments.step("TimeStep", DEFAULT_STEP_MS, MINUTE),
            by=By.REPLICA,
        )
    )
    view = yield from execute(JobQuestion(job))
    pods = {replica.name: replica.pod_id for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    members = [
        {"PodId": pods.get(line.replica) or f"{view.job.id}-{member_name(line)}", "Metrics": _points(line)}
        for line in result.lines
    ]
    return answer({"JobId": view.job.id, "PodMetrics": members}, context)


def _points(line: Line) -> list[dict[str, float]]:
    values = in_their_unit(line)
    return [{"Time": time, "Value": value} for time, value in zip(line.time.tolist(), values, strict=True)]


OPERATIONS = (
    Operation(
        name="GetJobMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/jobs/{JobId}/metrics",
        answer=get_job_metrics,
        parameters=(
            Parameter("JobId", "path", "The job.", required=True),
            Parameter("MetricType", "query", f"One of {', '.join(f'`{name}`' for name in METRICS)}.", required=True),
            Parameter("StartTime", "query", f"{TIME} Default: one hour ago."),
            Parameter("EndTime", "query", f"{TIME} Default: now. Not included."),
            Parameter("TimeStep", "query", "`30s`, `5m`, `1h`; a bare number counts minutes. Default: `5m`."),
            Parameter("Token", "query", "A share token (GetToken), read when the call has no other credential."),
        ),
        text=(
            "One metric of a job, a line for each pod: `{JobId, PodMetrics: [{PodId, Metrics: [{Time, Value}]}], "
            "RequestId}`. `Time` is the start of the step in milliseconds. Utilisations are percent (above 100 where "
            "more was used than is allowed), rates MB/s (10^6 bytes), none below 0. A GPU metric of a pod joins its "
            "devices. Steps without samples and pods without any are absent."
        ),
    ),
)
