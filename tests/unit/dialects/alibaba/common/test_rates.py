"""Tests of the vendor's rates: they reach the operations that have them."""

from jobmeter.access.limit import Per
from jobmeter.dialects.alibaba.common.product import Product
from jobmeter.dialects.registry import list_dialects


def test_what_is_served_has_the_figures_of_the_page():
    served = {
        one.name: (one.rate.per_second, one.rate.burst, one.rate.per)
        for dialect in list_dialects()
        if isinstance(dialect, Product)
        for one in dialect.operations
        if one.rate is not None
    }
    assert served == {
        "GetUserViewMetrics": (100, 100, Per.KEY),
        "CreateDiagnosticTask": (100, 100, Per.KEY),
        "ListDiagnosticResults": (100, 100, Per.KEY),
        "DescribeDiagnosticResult": (100, 100, Per.KEY),
        "DeleteResourceLog": (10, 10, Per.ACCOUNT),
        "DescribeResourceLog": (100, 100, Per.ACCOUNT),
    }
