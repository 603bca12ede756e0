"""CloudMonitor's call for the data of a chart."""

from jobmeter.dialects.alibaba.cms.operations.points import MOST, VERSION
from jobmeter.dialects.alibaba.common.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, MonitoredPart
from jobmeter.dialects.alibaba.common.cloudmonitor.request import LONGEST_MS
from jobmeter.dialects.alibaba.common.operation import dump_json
from jobmeter.dialects.base.view import BEARER, View, ViewCall, make_target
from jobmeter.model.catalog import MetricScope
from jobmeter.model.time import SECOND
from jobmeter.query.request import By


def view_call(view: View) -> ViewCall | None:
    """Return DescribeMetricList by card, or by pod for a metric without devices; None for an unsupported metric.

    The period is the shortest one that is at least the view's step. A range has at most 31 days.
    """
    by = By.DEVICE if view.metric.scope is MetricScope.DEVICE else By.REPLICA
    own = (
        one.name
        for one in MEASURES.values()
        if one.metric.name == view.metric.name and one.part is MonitoredPart.ITSELF and one.by is by
    )
    name = next(own, None)
    if name is None or view.span.length_ms > LONGEST_MS:
        return None
    period = next((one for one in PERIODS if one * SECOND >= view.step_ms), PERIODS[-1])
    path = make_target(
        f"/api/cms/{VERSION}/DescribeMetricList",
        Namespace=NAMESPACE,
        MetricName=name,
        Dimensions=dump_json({"jobId": view.job.id}),
        StartTime=view.span.start_ms,
        EndTime=view.span.end_ms,
        Period=period,
        Length=MOST,
    )
    level = "device" if by is By.DEVICE else "replica"
    periods = "" if period * SECOND == view.step_ms else f" Its next period is {period} seconds."
    note = f"By {level}, {MOST} points a page.{periods}"
    return ViewCall(operation="DescribeMetricList", path=path, header=BEARER, note=note)
