"""DescribeMetricList, DescribeMetricLast, DescribeMetricData, DescribeMetricTop: points of one metric.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetriclist
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetricdata
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetrictop
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jobmeter.dialects.alibaba.common.cloudmonitor.names import NAMESPACE
from jobmeter.dialects.alibaba.common.cloudmonitor.read import newest, newest_points, page
from jobmeter.dialects.alibaba.common.cloudmonitor.request import (
    DEFAULT_LENGTH,
    METRIC_NAME,
    NEXT_TOKEN,
    PERIOD,
    Request,
    period_of,
    request_of,
)
from jobmeter.dialects.alibaba.common.listing import in_order
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, json_text, listed, operation
from jobmeter.dialects.base import Answer, Steps
from jobmeter.model.time import DAY, HOUR, MINUTE

VERSION = "2019-01-01"
MOST = 1440
"""The longest page of points, as documented."""
DEFAULT_TOP = 10
ORDERS = ("Average", "Minimum", "Maximum")
_LATELY_MS = 2 * HOUR
_LONGEST_MS: Mapping[int, int] = MappingProxyType({5: 20 * MINUTE, 15: 20 * MINUTE, 3600: 2 * DAY})
"""Longest range of DescribeMetricData and DescribeMetricTop, by the period; else ``_LATELY_MS``."""

_TIME = "Epoch milliseconds, `YYYY-MM-DD hh:mm:ss` or ISO 8601, UTC where no zone is named."
_METRIC = (
    in_query("Namespace", f"`{NAMESPACE}`.", required=True),
    METRIC_NAME,
    in_query(
        "Dimensions",
        "JSON text: an object, or an array of up to 50, with `jobId`, `pod`, `gpu` and `workspaceId`, empty for all; "
        "`userId` and `regionId` are given back as they came. Without a `jobId`: every job that ran in the range, when "
        "these are at most 50.",
    ),
    PERIOD,
)
_PARAMETERS = (*_METRIC, in_query("Length", f"Points in a page, 1 to {MOST}. Default: 1000."), NEXT_TOKEN)
_SHORT_RANGE = (
    in_query("StartTime", f"{_TIME} Default: the longest range before EndTime."),
    in_query(
        "EndTime",
        f"{_TIME} Default: now. Not included. At most 20 minutes after StartTime for periods up to 15 seconds, two "
        "days for 3600, else two hours.",
    ),
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
    """Returns one metric's points as JSON text: `{NextToken, Code, Datapoints, Period, Success, RequestId}`.

    The points are the same as in PAI-DLC's GetMetrics. A job that does not exist has none. GET and POST, the parameters
    in the query or in a form body.
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
    """Returns the newest point of each line in the range, in the form of DescribeMetricList, by job, pod and card."""
    request = _request(arguments, "DescribeMetricLast", _LATELY_MS)
    points, token = yield from newest(request)
    return _points(arguments, request, points, token)


@operation(
    "POST /",
    "metrics:read",
    *_METRIC,
    in_query("Length", f"At most so many points, 1 to {MOST}. Default: 1000."),
    *_SHORT_RANGE,
    by_resource=True,
)
def describe_metric_data(arguments: Arguments) -> Steps:
    """Returns the newest point of each line in the range as JSON text: `{Code, Datapoints, Period, RequestId}`.

    The points are the same as in DescribeMetricLast, in one page.
    """
    request = _in_short_range(arguments, "DescribeMetricData", DEFAULT_LENGTH)
    points = yield from newest_points(request)
    return _one_page(arguments, request, points)


@operation(
    "POST /",
    "metrics:read",
    *_METRIC,
    in_query("Orderby", f"One of {listed(ORDERS)}.", required=True),
    in_query("OrderDesc", "`False` (default): the greatest first; `True`: the least first. So the vendor has it."),
    in_query("Length", f"At most so many points, 1 to {MOST}. Default: {DEFAULT_TOP}."),
    *_SHORT_RANGE,
    by_resource=True,
)
def describe_metric_top(arguments: Arguments) -> Steps:
    """Returns the lines with the greatest or least newest point in the range: `{Code, Datapoints, Period, RequestId}`.

    The points are the same as in DescribeMetricLast, with their place, from 1, as `order`.
    """
    arguments.required("Orderby")
    field, ascending = arguments.word("Orderby", ORDERS), arguments.flag("OrderDesc")
    request = _in_short_range(arguments, "DescribeMetricTop", DEFAULT_TOP)
    found = yield from newest_points(request)
    points = in_order(found, lambda point: point[field], descending=not ascending)
    return _one_page(arguments, request, [{"order": at, **point} for at, point in enumerate(points, 1)])


def _in_short_range(arguments: Arguments, name: str, length: int) -> Request:
    arguments.required("Namespace")
    longest_ms = _LONGEST_MS.get(period_of(arguments), _LATELY_MS)
    return request_of(arguments, name, most=MOST, length=length, back_ms=longest_ms, longest_ms=longest_ms)


def _one_page(arguments: Arguments, request: Request, points: list[dict[str, Any]]) -> Answer:
    body = {"Code": "200", "Datapoints": json_text(points[: request.length]), "Period": str(request.period)}
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
