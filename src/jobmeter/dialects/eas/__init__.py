"""Alibaba Cloud EAS 2021-07-01: log shippers of resource groups. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.eas.gaps import GAPS
from jobmeter.dialects.eas.resource_log import OPERATIONS

EAS = Product(
    name="eas",
    title="Alibaba Cloud EAS, API version 2021-07-01",
    version="2021-07-01",
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=("eas",),
    fields={"project": "ProjectName", "logstore": "LogStore", "resource_group": "ResourceId"},
    not_found={"sink": "InvalidParameter.LogStoreNotFound", "shipper": "ResourceLog.NotFound"},
)
