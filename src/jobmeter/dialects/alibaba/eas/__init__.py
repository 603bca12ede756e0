"""Alibaba Cloud EAS 2021-07-01: jobs as services, resource groups, their log shippers. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.alibaba.eas.names import NAME
from jobmeter.dialects.base.request import load_operations

EAS = Product(
    name=NAME,
    title="Alibaba Cloud EAS, API version 2021-07-01",
    version="2021-07-01",
    url_names=(NAME,),
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        exclude(
            "Services: making, changing, scaling and diagnosing them; their instances, events and addresses",
            "Jobmeter measures jobs, which are listed as services, and runs none.",
        ),
        exclude(
            "Resource groups and their machines: their administration",
            "A resource group is what job and node records name; nothing has to be created.",
        ),
    ),
    fields={
        "project": "ProjectName",
        "logstore": "LogStore",
        "resource_group": "ResourceId",
        "job": "ServiceName",
        "sort": "Sort",
        "offset": "PageNum",
        "limit": "PageSize",
        "start": "StartTime",
        "end": "EndTime",
    },
    not_found={
        "sink": "InvalidParameter.LogStoreNotFound",
        "shipper": "ResourceLog.NotFound",
        "job": "InvalidServiceName.NotFound",
        "instance": "InvalidInstanceName.NotFound",
    },
)
