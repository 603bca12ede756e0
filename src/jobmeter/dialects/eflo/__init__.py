"""Alibaba Cloud eflo-controller 2022-12-15: system logs of nodes, and diagnostic tasks. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.eflo import names
from jobmeter.dialects.eflo.gaps import GAPS
from jobmeter.dialects.eflo.operations import OPERATIONS

EFLO = Product(
    name=names.NAME,
    title="Alibaba Cloud Lingjun (eflo-controller), API version 2022-12-15",
    version=names.VERSION,
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=("eflo-controller", "eflo"),
    fields=names.FIELDS,
    not_found=names.NOT_FOUND,
)
