"""Alibaba Cloud CloudMonitor (CMS) 2019-01-01, as far as PAI-DLC's documents refer to it. Sources: SPEC.md."""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.cms import names
from jobmeter.dialects.cms.gaps import GAPS
from jobmeter.dialects.cms.operations import OPERATIONS

CMS = Product(
    name=names.NAME,
    title="Alibaba Cloud CloudMonitor (CMS), API version 2019-01-01",
    version=names.VERSION,
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=("cms", "Cms"),
    fields=names.FIELDS,
    not_found=names.NOT_FOUND,
)
