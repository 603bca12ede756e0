"""Alibaba Cloud PAI-DLC 2020-12-03: the jobs of Deep Learning Containers. Sources and gaps: SPEC.md."""

from jobmeter.access.signatures import ALIBABA, SHARE
from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.pai_dlc import names
from jobmeter.dialects.pai_dlc.gaps import GAPS
from jobmeter.dialects.pai_dlc.operations import OPERATIONS

PAI_DLC = Product(
    name=names.NAME,
    title="Alibaba Cloud PAI-DLC, API version 2020-12-03",
    version=names.VERSION,
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=("pai-dlc",),
    fields=names.FIELDS,
    not_found=names.NOT_FOUND,
    schemes=(*ALIBABA, SHARE),
)
