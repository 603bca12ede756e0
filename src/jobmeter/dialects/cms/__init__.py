"""Alibaba Cloud CloudMonitor (CMS) 2019-01-01, as far as PAI-DLC's documents refer to it. Sources: SPEC.md.

Its metrics are in ``dialects.alibaba.cloudmonitor``.
"""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.base import Gap, GapStatus
from jobmeter.dialects.cms.operations import describe_metric_last, describe_metric_list, describe_metric_meta_list

CMS = Product(
    name="cms",
    title="Alibaba Cloud CloudMonitor (CMS), API version 2019-01-01",
    version="2019-01-01",
    url_names=("cms", "Cms"),
    operations=(describe_metric_list, describe_metric_last, describe_metric_meta_list),
    gaps=(
        Gap("Namespaces other than `acs_pai_dlc`", "They are about other products.", GapStatus.NEVER),
        Gap("The namespace `acs_pai_dsw`", "It is about notebooks, which are no jobs.", GapStatus.NEVER),
        Gap("`Express`", "Its `groupby` joins instances of other products.", GapStatus.NEVER),
        Gap("DescribeMetricTop, DescribeMetricData", "The same points come from DescribeMetricList."),
        Gap(
            "Alerts, dashboards, groups, sites and all other operations",
            "They are refused with `InvalidAction.NotFound`.",
            GapStatus.NEVER,
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
