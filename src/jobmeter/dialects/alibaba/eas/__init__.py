"""Alibaba Cloud EAS 2021-07-01: jobs as services, resource groups, their log shippers. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, never
from jobmeter.dialects.alibaba.eas.names import NAME
from jobmeter.dialects.alibaba.eas.resource_log import create_resource_log, delete_resource_log, describe_resource_log
from jobmeter.dialects.alibaba.eas.resources import list_resources
from jobmeter.dialects.alibaba.eas.services import describe_service_log, list_services

EAS = Product(
    name=NAME,
    title="Alibaba Cloud EAS, API version 2021-07-01",
    version="2021-07-01",
    url_names=(NAME,),
    operations=(
        create_resource_log,
        describe_resource_log,
        delete_resource_log,
        list_resources,
        list_services,
        describe_service_log,
    ),
    gaps=(
        never(
            "Services: making, changing, scaling and diagnosing them; their instances, events and addresses",
            "Jobmeter measures jobs, which are listed as services, and runs none.",
        ),
        never(
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
