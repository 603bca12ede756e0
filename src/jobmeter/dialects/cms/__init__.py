"""Alibaba Cloud CloudMonitor (CMS) 2019-01-01, to the extent that PAI-DLC's documents refer to it. Sources: SPEC.md.

Its metrics are in ``dialects.alibaba.cloudmonitor``.
"""

from jobmeter.dialects.alibaba.product import Product, never
from jobmeter.dialects.cms.meta import describe_metric_meta_list, describe_project_meta
from jobmeter.dialects.cms.operations import (
    describe_metric_data,
    describe_metric_last,
    describe_metric_list,
    describe_metric_top,
)

CMS = Product(
    name="cms",
    title="Alibaba Cloud CloudMonitor (CMS), API version 2019-01-01",
    version="2019-01-01",
    url_names=("cms", "Cms"),
    operations=(
        describe_metric_list,
        describe_metric_last,
        describe_metric_data,
        describe_metric_top,
        describe_metric_meta_list,
        describe_project_meta,
    ),
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
