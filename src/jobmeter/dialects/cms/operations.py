"""DescribeMetricList, DescribeMetricLast and DescribeMetricMetaList: points, and the list of metrics.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetriclist
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetricmetalist
"""

from jobmeter.dialects.alibaba.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, STATISTICS, Measure
from jobmeter.dialects.alibaba.cloudmonitor.read import newest, page
from jobmeter.dialects.alibaba.cloudmonitor.request import METRIC_NAME, NEXT_TOKEN, PERIOD, Request, request_of
from jobmeter.dialects.alibaba.operation import Arguments, answer, in_query, json_text, operation
from jobmeter.dialects.base import Answer, Steps
from jobmeter.model.time import HOUR

MOST = 1440
"""The longest page of points, as documented."""
DEFAULT_PAGE, MAX_PAGE = 30, 10_000
"""Sizes of a page of the list of metrics."""
_LATELY_MS = 2 * HOUR

_TIME = "Epoch milliseconds, `YYYY-MM-DD hh:mm:ss` or ISO 8601, UTC where no zone is named."
_PARAMETERS = (
    in_query("Namespace", f"`{NAMESPACE}`.", required=True),
    METRIC_NAME,
    in_query(
        "Dimensions",
        "JSON text: an object, or an array of up to 50, with `jobId`, `pod`, `gpu` and `workspaceId`, empty for all; "
        "`userId` and `regionId` are given back as they came. Without a `jobId`: every job that ran in the range, when "
        "these are at most 50.",
    ),
    PERIOD,
    in_query("Length", f"Points in a page, 1 to {MOST}. Default: 1000."),
    NEXT_TOKEN,
)


@operation(
    "POST /",
    "metrics:read",
    *_PARAMETERS,
    in_query("StartTime", f"{_TIME} Default: one hour before EndTime."),
    in_query("EndTime", f"{_TIME} Default: now. Not included. At most 31 days after StartTime."),
    by_resource=True,
)
def describe_metric_list(arguments: Arguments) -> Steps:
    """One metric's points as JSON text: `{NextToken, Code, Datapoints, Period, Success, RequestId}`.

    The points are those of PAI-DLC's GetMetrics. A job that is not there has none. GET and POST, the parameters in the
    query or in a form body.
    """
    request = _request(arguments, "DescribeMetricList", HOUR)
    points, token = yield from page(request, strict=False)
    return _points(arguments, request, points, token)


@operation(
    "POST /",
    "metrics:read",
    *_PARAMETERS,
    in_query("StartTime", f"{_TIME} Default: two hours before EndTime."),
    in_query("EndTime", f"{_TIME} Default: now. Not included."),
    by_resource=True,
)
def describe_metric_last(arguments: Arguments) -> Steps:
    """The newest point of each line in the range, in the form of DescribeMetricList, by job, pod and card."""
    request = _request(arguments, "DescribeMetricLast", _LATELY_MS)
    points, token = yield from newest(request)
    return _points(arguments, request, points, token)


@operation(
    "POST /",
    "catalog:read",
    in_query("Namespace", f"`{NAMESPACE}`; another one has no metrics. Default: all."),
    in_query("MetricName", "One metric. Default: all."),
    in_query("PageNumber", "From 1, the default."),
    in_query("PageSize", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
)
def describe_metric_meta_list(arguments: Arguments) -> Steps:
    """Which metrics there are, in which unit.

    `{TotalCount, Resources: {Resource: [{MetricName, Periods, Description, Dimensions, Labels, Unit, Statistics,
    Namespace}]}, Code, Success, RequestId}`.
    """
    namespace, name = arguments.text("Namespace", NAMESPACE), arguments.text("MetricName")
    start, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, 10**6)
    found = [one for one in MEASURES.values() if namespace == NAMESPACE and name in {"", one.name}]
    body = {
        "TotalCount": str(len(found)),
        "Resources": {"Resource": [_described(one) for one in found[start : start + size]]},
        "Code": "200",
        "Success": True,
    }
    yield from ()
    return answer(body, arguments)


def _request(arguments: Arguments, name: str, back_ms: int) -> Request:
    arguments.required("Namespace")
    return request_of(arguments, name, most=MOST, back_ms=back_ms)


def _points(arguments: Arguments, request: Request, points: list[dict[str, object]], token: str) -> Answer:
    body = {
        **({"NextToken": token} if token else {}),
        "Code": "200",
        "Datapoints": json_text(points),
        "Period": str(request.period),
        "Success": True,
    }
    return answer(body, arguments)


def _described(measure: Measure) -> dict[str, str]:
    return {
        "MetricName": measure.name,
        "Periods": ",".join(map(str, PERIODS)),
        "Description": measure.text,
        "Dimensions": measure.dimensions,
        "Labels": json_text([{"name": "productCategory", "value": "pai_dlc"}]),
        "Unit": measure.unit,
        "Statistics": ",".join(STATISTICS),
        "Namespace": NAMESPACE,
    }
