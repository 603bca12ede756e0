"""Alibaba Cloud CloudMonitor (CMS) 2019-01-01, as far as PAI-DLC's documents refer to it. Sources: SPEC.md.

Its metrics are in ``dialects.alibaba.cloudmonitor``.
"""

from jobmeter.dialects.alibaba.product import Product, never
from jobmeter.dialects.base import Gap
from jobmeter.dialects.cms.operations import describe_metric_last, describe_metric_list, describe_metric_meta_list

CMS = Product(
    name="cms",
    title="Alibaba Cloud CloudMonitor (CMS), API version 2019-01-01",
    version="2019-01-01",
    url_names=("cms", "Cms"),
    operations=(describe_metric_list, describe_metric_last, describe_metric_meta_list),
    gaps=(
        never("Namespaces other than `acs_pai_dlc`", "They are about other products."),
        never("The namespace `acs_pai_dsw`", "It is about notebooks, which are no jobs."),
        never("`Express`", "Its `groupby` joins instances of other products."),
        Gap("DescribeMetricTop, DescribeMetricData", "The same points come from DescribeMetricList."),
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
