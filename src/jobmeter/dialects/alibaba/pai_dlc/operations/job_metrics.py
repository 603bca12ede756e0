"""GetJobMetrics.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics
"""

from typing import Annotated

from jobmeter.dialects.alibaba.common.operation import TIME, Step, answer, convert_units, map_pod_ids, operation
from jobmeter.dialects.alibaba.pai_dlc.requests import METRICS, TIME_TEXT, DlcJobRequest, Token
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.model.catalog import Metric
from jobmeter.model.series import choose_member_name
from jobmeter.model.time import HOUR, MINUTE
from jobmeter.query.request import By, Line, MetricQuery


@operation("GET /api/v1/jobs/{JobId}/metrics", "metrics:read", by_resource=True)
class GetJobMetrics(DlcJobRequest, frozen=True, kw_only=True):
    """Returns one metric of a job, a line for each pod: `{JobId, PodMetrics: [{PodId, Metrics}], RequestId}`.

    A member of Metrics is `{Time, Value}`. `Time` is the start of the step in milliseconds. Utilisations are percent
    (above 100 if the usage exceeds the limit), rates MB/s (10^6 bytes), none below 0. A GPU metric of a pod joins its
    devices. Steps without samples and pods without any are absent.
    """

    metric_type: Annotated[Metric, Choice(METRICS, exact=True)]
    start_time: Annotated[int | None, f"{TIME_TEXT} Default: one hour ago.", TIME] = None
    end_time: Annotated[int | None, f"{TIME_TEXT} Not included. Default: now.", TIME] = None
    time_step: Annotated[int, Step(MINUTE)] = 5 * MINUTE
    token: Token = ""

    def _steps(self) -> Steps:
        result = yield from ask(
            MetricQuery(
                subject=self.ref,
                metrics=(self.metric_type.name,),
                range=self.read_time_range(self.start_time, self.end_time, HOUR),
                step_ms=self.time_step,
                by=By.REPLICA,
            )
        )
        view = yield from self.find_view()
        pods = map_pod_ids(view)
        members = [
            {
                "PodId": pods.get(line.replica) or f"{view.job.id}-{choose_member_name(line.replica, line.node)}",
                "Metrics": _points(line),
            }
            for line in result.lines
        ]
        return answer({"JobId": view.job.id, "PodMetrics": members}, self)


def _points(line: Line) -> list[dict[str, float]]:
    values = convert_units(line)
    return [{"Time": time, "Value": value} for time, value in zip(line.time.tolist(), values, strict=True)]
