"""GetMetrics: CloudMonitor's data points through PAI-DLC.

https://help.aliyun.com/en/pai/developer-reference/api-pai-dlc-2020-12-03-getmetrics
"""

from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.alibaba.common.cloudmonitor.read import read_points
from jobmeter.dialects.alibaba.common.cloudmonitor.request import (
    DEFAULT_LENGTH,
    POINT_TIME,
    PointsRequest,
    read_request,
)
from jobmeter.dialects.alibaba.common.operation import answer, dump_json, operation
from jobmeter.dialects.alibaba.pai_dlc.requests import TIME_TEXT, Token
from jobmeter.dialects.base import MissingFieldError, Steps


@operation("GET /api/v1/cms/metrics", "metrics:read", by_resource=True)
class GetMetrics(PointsRequest, frozen=True, kw_only=True):
    """Returns one metric's points as JSON text: `{Code, DataPoints, Message, NextToken, Period, Success, RequestId}`.

    A point is `{timestamp, userId, workspaceId, jobId, pod, gpu, Minimum, Maximum, Average, Value}`, in the order of
    (time, job, pod, card); `timestamp` is the start of its period in milliseconds, `Value` the average. Shares are
    percent, amounts MiB, rates MiB/s. The amount of a job or a pod is the sum of its members, its share as in
    GetJobMetrics; the least and greatest share is that of any member. `JOB_`, `POD_` and `CARD_` name the level of a
    line. NextToken is absent on the last page.
    """

    job_id: Annotated[str, "The job, where Dimensions name none."] = ""
    length: Annotated[int, "Most points of the answer.", Meta(ge=1, le=5000)] = DEFAULT_LENGTH
    start_time: Annotated[
        int | None,
        f"{TIME_TEXT} Or epoch milliseconds. Default: one hour before EndTime.",
        POINT_TIME,
    ] = None
    end_time: Annotated[
        int | None,
        f"{TIME_TEXT} Or epoch milliseconds. Not included. At most 31 days later. Default: now.",
        POINT_TIME,
    ] = None
    token: Token = ""

    def _steps(self) -> Steps:
        request = read_request(self, "GetMetrics", job=self.job_id)
        if not all(resource.job for resource in request.resources):
            raise MissingFieldError("JobId, or a jobId in Dimensions, is mandatory for this action", "JobId")
        points, token = yield from read_points(request, strict=True)
        body = {
            "Code": "200",
            "DataPoints": dump_json(points),
            "Message": "",
            **({"NextToken": token} if token else {}),
            "Period": str(request.period),
            "Success": True,
        }
        return answer(body, self)
