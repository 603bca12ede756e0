"""Alibaba Cloud CloudMonitor (CMS) 2019-01-01, to the extent that PAI-DLC's documents refer to it. Sources: SPEC.md.

Its metrics are in ``dialects.alibaba.common.cloudmonitor``.
"""

from jobmeter.dialects.alibaba.cms.operations.points import VERSION
from jobmeter.dialects.alibaba.cms.view import view_call
from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.base.request import load_operations

CMS = Product(
    name="cms",
    title="Alibaba Cloud CloudMonitor (CMS), API version 2019-01-01",
    version=VERSION,
    url_names=("cms", "Cms"),
    view_call=view_call,
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        exclude("Namespaces other than `acs_pai_dlc`", "They are about other products."),
        exclude("The namespace `acs_pai_dsw`", "It is about notebooks, which are no jobs."),
        exclude("`Express`", "Its `groupby` joins instances of other products."),
        exclude(
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
