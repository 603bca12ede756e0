"""DescribeMetricList, DescribeMetricLast, DescribeMetricData, DescribeMetricTop: points of one metric.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetriclist
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetricdata
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetrictop
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.alibaba.common.cloudmonitor.names import NAMESPACE
from jobmeter.dialects.alibaba.common.cloudmonitor.read import read_newest_page, read_newest_points, read_points
from jobmeter.dialects.alibaba.common.cloudmonitor.request import (
    DEFAULT_LENGTH,
    POINT_TIME,
    PointsRequest,
    read_request,
)
from jobmeter.dialects.alibaba.common.cloudmonitor.request import MonitoringRequest as PointsPage
from jobmeter.dialects.alibaba.common.listing import sort_records
from jobmeter.dialects.alibaba.common.operation import answer, dump_json, operation
from jobmeter.dialects.base import Answer, Steps
from jobmeter.dialects.base.request import Choice
from jobmeter.model.time import DAY, HOUR, MINUTE

VERSION = "2019-01-01"
MOST = 1440
"""Most points of a page, as documented."""
_LATELY_MS = 2 * HOUR
_LONGEST_MS: Mapping[int, int] = {5: 20 * MINUTE, 15: 20 * MINUTE, 3600: 2 * DAY}
"""Longest range of DescribeMetricData and DescribeMetricTop by period; ``_LATELY_MS`` for the other periods."""

_TIME = "Epoch milliseconds, `YYYY-MM-DD hh:mm:ss` or ISO 8601; UTC without a zone."
Length = Annotated[int, "Most points of the answer.", Meta(ge=1, le=MOST)]


class CmsRequest(PointsRequest, frozen=True, kw_only=True):
    """A call for points, which names the namespace."""

    namespace: Annotated[str, f"`{NAMESPACE}`."]
    length: Length = DEFAULT_LENGTH


class _ShortRange(CmsRequest, frozen=True, kw_only=True):
    start_time: Annotated[int | None, f"{_TIME} Default: the longest range before EndTime.", POINT_TIME] = None
    end_time: Annotated[
        int | None,
        f"{_TIME} Not included. At most 20 minutes after StartTime for periods up to 15 seconds, two "
        "days for 3600, else two hours. Default: now.",
        POINT_TIME,
    ] = None

    def make_request(self, name: str) -> PointsPage:
        """Return the request of the call."""
        longest_ms = _LONGEST_MS.get(self.check_period(), _LATELY_MS)
        return read_request(self, name, back_ms=longest_ms, longest_ms=longest_ms)

    def encode_page(self, points: list[dict[str, Any]]) -> Answer:
        """Return the first points as JSON text."""
        body = {"Code": "200", "Datapoints": dump_json(points[: self.length]), "Period": str(self.period)}
        return answer(body, self)


class _Paged(CmsRequest, frozen=True, kw_only=True):
    def encode_page(self, points: list[dict[str, object]], token: str) -> Answer:
        """Return a page of points as JSON text."""
        body = {
            **({"NextToken": token} if token else {}),
            "Code": "200",
            "Datapoints": dump_json(points),
            "Period": str(self.period),
            "Success": True,
        }
        return answer(body, self)


@operation("POST /", "metrics:read", by_resource=True)
class DescribeMetricList(_Paged, frozen=True, kw_only=True):
    """Returns one metric's points as JSON text: `{NextToken, Code, Datapoints, Period, Success, RequestId}`.

    The points are the same as in PAI-DLC's GetMetrics. A job that does not exist has none. The call is a GET or a POST,
    with parameters in the query or in a form body.
    """

    start_time: Annotated[int | None, f"{_TIME} Default: one hour before EndTime.", POINT_TIME] = None
    end_time: Annotated[
        int | None,
        f"{_TIME} Not included. At most 31 days after StartTime. Default: now.",
        POINT_TIME,
    ] = None

    def _steps(self) -> Steps:
        points, token = yield from read_points(read_request(self, "DescribeMetricList"), strict=False)
        return self.encode_page(points, token)


@operation("POST /", "metrics:read", by_resource=True)
class DescribeMetricLast(_Paged, frozen=True, kw_only=True):
    """Returns the newest point of each line in the range, in the form of DescribeMetricList, by job, pod and card."""

    start_time: Annotated[int | None, f"{_TIME} Default: two hours before EndTime.", POINT_TIME] = None
    end_time: Annotated[int | None, f"{_TIME} Not included. Default: now.", POINT_TIME] = None

    def _steps(self) -> Steps:
        points, token = yield from read_newest_page(read_request(self, "DescribeMetricLast", back_ms=_LATELY_MS))
        return self.encode_page(points, token)


@operation("POST /", "metrics:read", by_resource=True)
class DescribeMetricData(_ShortRange, frozen=True, kw_only=True):
    """Returns the newest point of each line in the range as JSON text: `{Code, Datapoints, Period, RequestId}`.

    The points are the same as in DescribeMetricLast, in one page.
    """

    def _steps(self) -> Steps:
        points = yield from read_newest_points(self.make_request("DescribeMetricData"))
        return self.encode_page(points)


@operation("POST /", "metrics:read", by_resource=True)
class DescribeMetricTop(_ShortRange, frozen=True, kw_only=True):
    """Returns the lines with the greatest or least newest point in the range: `{Code, Datapoints, Period, RequestId}`.

    The points are the same as in DescribeMetricLast, with their place, from 1, as `order`.
    """

    orderby: Annotated[str, Choice(("Average", "Minimum", "Maximum"))]
    order_desc: Annotated[bool, "`False`: the greatest first; `True`: the least first (the vendor's order)."] = False
    length: Length = 10

    def _steps(self) -> Steps:
        found = yield from read_newest_points(self.make_request("DescribeMetricTop"))
        points = sort_records(found, lambda point: point[self.orderby], descending=not self.order_desc)
        return self.encode_page([{"order": at, **point} for at, point in enumerate(points, 1)])
