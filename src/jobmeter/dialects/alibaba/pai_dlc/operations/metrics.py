"""GetMetrics: CloudMonitor's data points through PAI-DLC.

https://help.aliyun.com/en/pai/developer-reference/api-pai-dlc-2020-12-03-getmetrics
"""

from jobmeter.dialects.alibaba.common.cloudmonitor.names import NAMESPACE
from jobmeter.dialects.alibaba.common.cloudmonitor.read import page
from jobmeter.dialects.alibaba.common.cloudmonitor.request import METRIC_NAME, NEXT_TOKEN, PERIOD, request_of
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, json_text, operation
from jobmeter.dialects.alibaba.pai_dlc.operations.common import TIME, TOKEN
from jobmeter.dialects.base import MissingFieldError, Steps

MOST = 5000


@operation(
    "GET /api/v1/cms/metrics",
    "metrics:read",
    METRIC_NAME,
    in_query("Namespace", f"`{NAMESPACE}`, which is also the default."),
    in_query("JobId", "The job, where Dimensions name none."),
    in_query(
        "Dimensions",
        "JSON text: an object, or an array of up to 50, with `jobId`, `pod` and `gpu`, empty for all; `userId` "
        "and `regionId` are given back as they came. A `JOB_` metric of a `pod` is reported for that pod.",
    ),
    in_query("StartTime", f"{TIME} Or epoch milliseconds. Default: one hour before EndTime."),
    in_query("EndTime", f"{TIME} Or epoch milliseconds. Default: now. Not included. At most 31 days after StartTime."),
    PERIOD,
    in_query("Length", f"Points in a page, 1 to {MOST}. Default: 1000."),
    NEXT_TOKEN,
    TOKEN,
    by_resource=True,
)
def get_metrics(arguments: Arguments) -> Steps:
    """Returns one metric's points as JSON text: `{Code, DataPoints, Message, NextToken, Period, Success, RequestId}`.

    A point is `{timestamp, userId, workspaceId, jobId, pod, gpu, Minimum, Maximum, Average, Value}`, in the order of
    (time, job, pod, card); `timestamp` is the start of its period in milliseconds, `Value` the average. Shares are
    percent, amounts MiB, rates MiB/s. The amount of a job or a pod is the sum of its members, its share as in
    GetJobMetrics; the least and greatest share is that of any member. `JOB_`, `POD_` and `CARD_` name the level of a
    line. NextToken is absent on the last page.
    """
    request = request_of(arguments, "GetMetrics", most=MOST, job=arguments.text("JobId"))
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
    return answer(body, arguments)
