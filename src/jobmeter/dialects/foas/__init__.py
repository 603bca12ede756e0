"""Alibaba Cloud Realtime Compute (Flink), API foas 2018-11-11: metrics of streaming and batch jobs. See SPEC.md."""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.foas import names
from jobmeter.dialects.foas.gaps import GAPS
from jobmeter.dialects.foas.operations import OPERATIONS

FOAS = Product(
    name=names.NAME,
    title="Alibaba Cloud Realtime Compute for Flink, API foas, version 2018-11-11",
    version=names.VERSION,
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=(names.NAME,),
    fields=names.FIELDS,
    not_found=names.NOT_FOUND,
)
