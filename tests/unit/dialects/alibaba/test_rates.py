"""The vendor's rates reach the operations that have them."""

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.alibaba.rates import RATES
from jobmeter.dialects.base import Answer, Operation, only
from jobmeter.dialects.registry import dialects


def operation(name: str, rate: Rate | None = None) -> Operation:
    return Operation(
        name=name,
        action="jobs:read",
        method="GET",
        path=f"/{name}",
        answer=lambda *_: only(Answer(200, b"")),
        parameters=(),
        text="",
        rate=rate,
    )


def test_a_product_gives_its_operations_the_documented_rates():
    own = Rate(1, 1)
    made = Product(
        name="x", title="x", version="1",
        operations=(operation("DeleteResourceLog"), operation("ListSyslogs"), operation("Other", own)),
    )  # fmt: skip
    assert [one.rate for one in made.operations] == [Rate(10, 10, Per.ACCOUNT), None, own]


def test_what_is_served_today_has_the_figures_of_the_page():
    figures = {
        "GetUserViewMetrics": (100, Per.KEY),
        "CreateDiagnosticTask": (100, Per.KEY),
        "ListDiagnosticResults": (100, Per.KEY),
        "DescribeDiagnosticResult": (100, Per.KEY),
        "DeleteResourceLog": (10, Per.ACCOUNT),
        "DescribeResourceLog": (100, Per.ACCOUNT),
    }
    assert {name: (rate.per_second, rate.per) for name, rate in RATES.items()} == figures
    served = {one.name: one.rate for dialect in dialects() for one in dialect.operations}
    assert served["GetUserViewMetrics"] == RATES["GetUserViewMetrics"]
    assert all(served[name] == rate for name, rate in RATES.items() if name in served)
