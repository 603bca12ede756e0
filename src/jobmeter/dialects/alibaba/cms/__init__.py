"""Alibaba Cloud CloudMonitor (CMS) 2019-01-01, to the extent that PAI-DLC's documents refer to it. Sources: SPEC.md.

Its metrics are in ``dialects.alibaba.common.cloudmonitor``.
"""

from jobmeter.dialects.alibaba.cms.operations.points import MOST, VERSION
from jobmeter.dialects.alibaba.common.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, MonitoredPart
from jobmeter.dialects.alibaba.common.cloudmonitor.request import LONGEST_MS
from jobmeter.dialects.alibaba.common.operation import json_text
from jobmeter.dialects.alibaba.common.product import Product, never
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.base.view import BEARER, View, ViewCall, target
from jobmeter.model.catalog import MetricScope
from jobmeter.model.time import SECOND
from jobmeter.query.request import By


def view_call(view: View) -> ViewCall | None:
    """Return DescribeMetricList by card, or by pod for a metric without devices; None for an unsupported metric.

    The period is the shortest one not below the step of the view. A range is limited to 31 days.
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
    path = target(
        f"/api/cms/{VERSION}/DescribeMetricList",
        Namespace=NAMESPACE,
        MetricName=name,
        Dimensions=json_text({"jobId": view.job.id}),
        StartTime=view.span.start_ms,
        EndTime=view.span.end_ms,
        Period=period,
        Length=MOST,
    )
    level = "device" if by is By.DEVICE else "replica"
    periods = "" if period * SECOND == view.step_ms else f" Its next period is {period} seconds."
    note = f"By {level}, {MOST} points a page.{periods}"
    return ViewCall(operation="DescribeMetricList", path=path, header=BEARER, note=note)


CMS = Product(
    name="cms",
    title="Alibaba Cloud CloudMonitor (CMS), API version 2019-01-01",
    version=VERSION,
    url_names=("cms", "Cms"),
    view_call=view_call,
    operations=operations_of(f"{__name__}.operations"),
    gaps=(
        never("Namespaces other than `acs_pai_dlc`", "They are about other products."),
        never("The namespace `acs_pai_dsw`", "It is about notebooks, which are no jobs."),
        never("`Express`", "Its `groupby` joins instances of other products."),
        never(
            "Alerts, dashboards, groups, sites and all other operations",
            "They are refused with `InvalidAction.NotFound`.",
        ),
    ),
    fields={
        "job": "Dimensions",
        "job_id": "Dimensions",
        "project": "Dimensions",
        "metric": "MetricName",
        "metrics": "MetricName",
        "start": "StartTime",
        "end": "EndTime",
        "step": "Period",
        "range": "StartTime",
    },
    not_found={"job": "ResourceNotFound", "metric": "ResourceNotFound", "namespace": "ResourceNotFound"},
)
