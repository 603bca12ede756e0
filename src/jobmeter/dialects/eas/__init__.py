"""Alibaba Cloud EAS 2021-07-01: log shippers of resource groups. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.product import Product, never
from jobmeter.dialects.eas.resource_log import create_resource_log, delete_resource_log, describe_resource_log

EAS = Product(
    name="eas",
    title="Alibaba Cloud EAS, API version 2021-07-01",
    version="2021-07-01",
    url_names=("eas",),
    operations=(create_resource_log, describe_resource_log, delete_resource_log),
    gaps=(
        never(
            "Services, instances, their events, logs, diagnoses and scaling",
            "Jobmeter measures jobs and runs no services.",
        ),
        never(
            "Resource groups and their machines: their administration",
            "A resource group is what job and node records name; nothing has to be created.",
        ),
    ),
    fields={"project": "ProjectName", "logstore": "LogStore", "resource_group": "ResourceId"},
    not_found={"sink": "InvalidParameter.LogStoreNotFound", "shipper": "ResourceLog.NotFound"},
)
