"""DescribeMetricList and DescribeMetricLast.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetriclist
"""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS
from jobmeter.dialects.alibaba.cloudmonitor.read import newest, page
from jobmeter.dialects.alibaba.cloudmonitor.request import Request, request_of
from jobmeter.dialects.alibaba.operation import Arguments, answer, json_text
from jobmeter.dialects.base import Answer, Context, MissingFieldError, Operation, Parameter, Steps
from jobmeter.model.time import HOUR

MOST = 1440
"""The longest page, as documented."""
_LATELY_MS = 2 * HOUR


def describe_metric_list(call: Call, context: Context) -> Steps:
    """One page of one metric's points."""
    request = _request(call, context, "DescribeMetricList", HOUR)
    points, token = yield from page(request, strict=False)
    return _answer(request, points, token, context)


def describe_metric_last(call: Call, context: Context) -> Steps:
    """The newest point of each line."""
    request = _request(call, context, "DescribeMetricLast", _LATELY_MS)
    points, token = yield from newest(request)
    return _answer(request, points, token, context)


def _request(call: Call, context: Context, operation: str, back_ms: int) -> Request:
    arguments = Arguments(call, context)
    if not arguments.text("Namespace"):
        raise MissingFieldError("Namespace is mandatory for this action", "Namespace")
    return request_of(arguments, context.now_ms, operation, most=MOST, back_ms=back_ms)


def _answer(request: Request, points: list[dict[str, object]], token: str, context: Context) -> Answer:
    body = {
        **({"NextToken": token} if token else {}),
        "Code": "200",
        "Datapoints": json_text(points),
        "Period": str(request.period),
        "Success": True,
    }
    return answer(body, context)


_PARAMETERS = (
    Parameter("Namespace", "query", f"`{NAMESPACE}`.", required=True),
    Parameter("MetricName", "query", f"One of {', '.join(f'`{name}`' for name in MEASURES)}.", required=True),
    Parameter(
        "Dimensions",
        "query",
        "JSON text: an object, or an array of up to 50, with `jobId`, `pod`, `gpu` and `workspaceId`, empty for all; "
        "`userId` and `regionId` are given back as they came. Without a `jobId`: every job that ran in the range, when "
        "these are at most 50.",
    ),
    Parameter("Period", "query", f"Seconds: {', '.join(map(str, PERIODS))}. Default: 60."),
    Parameter("Length", "query", f"Points in a page, 1 to {MOST}. Default: 1000."),
    Parameter("NextToken", "query", "What the page before gave; the other parameters stay as they were."),
)
_TIME = "Epoch milliseconds, `YYYY-MM-DD hh:mm:ss` or ISO 8601, UTC where no zone is named."

OPERATIONS = (
    Operation(
        name="DescribeMetricList",
        action="metrics:read",
        method="POST",
        path="/",
        answer=describe_metric_list,
        parameters=(
            *_PARAMETERS,
            Parameter("StartTime", "query", f"{_TIME} Default: one hour before EndTime."),
            Parameter("EndTime", "query", f"{_TIME} Default: now. Not included. At most 31 days after StartTime."),
        ),
        text=(
            "One metric's points as JSON text: `{NextToken, Code, Datapoints, Period, Success, RequestId}`; the points "
            "are those of PAI-DLC's GetMetrics. A job that is not there has none. GET and POST, the parameters in the "
            "query or in a form body."
        ),
    ),
    Operation(
        name="DescribeMetricLast",
        action="metrics:read",
        method="POST",
        path="/",
        answer=describe_metric_last,
        parameters=(
            *_PARAMETERS,
            Parameter("StartTime", "query", f"{_TIME} Default: two hours before EndTime."),
            Parameter("EndTime", "query", f"{_TIME} Default: now. Not included."),
        ),
        text="The newest point of each line in the range, in the form of DescribeMetricList, by job, pod and card.",
    ),
)
