"""Alibaba Cloud PaiStudio 2022-01-12: users and nodes of resource groups, training jobs. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.pai_studio import names
from jobmeter.dialects.pai_studio.gaps import GAPS
from jobmeter.dialects.pai_studio.operations import OPERATIONS

PAI_STUDIO = Product(
    name=names.NAME,
    title="Alibaba Cloud PaiStudio, API version 2022-01-12",
    version=names.VERSION,
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=("PaiStudio",),
    fields=names.FIELDS,
    not_found=names.NOT_FOUND,
)
