"""GetMetrics: CloudMonitor's data points, asked for through PAI-DLC.

https://help.aliyun.com/en/pai/developer-reference/api-pai-dlc-2020-12-03-getmetrics
"""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS
from jobmeter.dialects.alibaba.cloudmonitor.read import page
from jobmeter.dialects.alibaba.cloudmonitor.request import request_of
from jobmeter.dialects.alibaba.operation import Arguments, answer, json_text
from jobmeter.dialects.base import Context, MissingFieldError, Operation, Parameter, Steps
from jobmeter.dialects.pai_dlc.times import TIME

MOST = 5000


def get_metrics(call: Call, context: Context) -> Steps:
    """One page of one metric's points."""
    arguments = Arguments(call, context)
    request = request_of(arguments, context.now_ms, "GetMetrics", most=MOST, job=arguments.text("JobId"))
    if not all(resource.job for resource in request.resources):
        raise MissingFieldError("JobId, or a jobId in Dimensions, is mandatory for this action", "JobId")
    points, token = yield from page(request, strict=True)
    body = {
        "Code": "200",
        "DataPoints": json_text(points),
        "Message": "",
        **({"NextToken": token} if token else {}),
        "Period": str(request.period),
        "Success": True,
    }
    return answer(body, context)


OPERATIONS = (
    Operation(
        name="GetMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/cms/metrics",
        answer=get_metrics,
        parameters=(
            Parameter("MetricName", "query", f"One of {', '.join(f'`{name}`' for name in MEASURES)}.", required=True),
            Parameter("Namespace", "query", f"`{NAMESPACE}`, which is also the default."),
            Parameter("JobId", "query", "The job, where Dimensions name none."),
            Parameter(
                "Dimensions",
                "query",
                "JSON text: an object, or an array of up to 50, with `jobId`, `pod` and `gpu`, empty for all; `userId` "
                "and `regionId` are given back as they came. A `JOB_` metric of a `pod` is told of that pod.",
            ),
            Parameter("StartTime", "query", f"{TIME} Or epoch milliseconds. Default: one hour before EndTime."),
            Parameter(
                "EndTime",
                "query",
                f"{TIME} Or epoch milliseconds. Default: now. Not included. At most 31 days after StartTime.",
            ),
            Parameter("Period", "query", f"Seconds: {', '.join(map(str, PERIODS))}. Default: 60."),
            Parameter("Length", "query", f"Points in a page, 1 to {MOST}. Default: 1000."),
            Parameter("NextToken", "query", "What the page before gave; the other parameters stay as they were."),
            Parameter("Token", "query", "A share token (GetToken), read when the call has no other credential."),
        ),
        text=(
            "One metric's points as JSON text: `{Code, DataPoints, Message, NextToken, Period, Success, RequestId}`. A "
            "point is `{timestamp, userId, workspaceId, jobId, pod, gpu, Minimum, Maximum, Average, Value}`, in the "
            "order of (time, job, pod, card); `timestamp` is the start of its period in milliseconds, `Value` the "
            "average. Shares are percent, amounts MiB, rates MiB/s. A job's or a pod's amount is the sum of its "
            "members', its share as in GetJobMetrics; the least and greatest share is that of any member. `JOB_`, "
            "`POD_` and `CARD_` say what a line stands for. There is no NextToken when nothing is left."
        ),
    ),
)
