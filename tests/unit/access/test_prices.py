"""Tests of prices: the page's figures, an operator's file, and bills in decimal numbers."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.prices import Bill, Pricing, load_prices
from jobmeter.errors import ConfigurationError

SHIPPED = load_prices()
PAGE = {
    "GetUserViewMetrics": (1000, "0.001"),
    "ListSyslogs": (1000, "0.0001"),
    "CreateDiagnosticTask": (100, "0.001"),
    "DescribeDiagnosticResult": (1000, None),
    "DeleteResourceLog": (100, "0.001"),
    "DescribeResourceLog": (1000, "0.0001"),
    "GetXtraceToken": (None, None),
}


def test_the_shipped_table_is_that_of_the_page() -> None:
    found = {name: (price.free, price.input) for name, price in SHIPPED.operations.items()}
    assert found == {name: (free, None if unit is None else Decimal(unit)) for name, (free, unit) in PAGE.items()}
    assert all(price.input == price.output for price in SHIPPED.operations.values())
    assert (SHIPPED.currency, SHIPPED.charge) == ("CNY", "input")


@given(name=st.sampled_from(sorted(PAGE)), calls=st.integers(0, 10**12))
def test_a_bill_is_exact(name: str, calls: int) -> None:
    free, unit = PAGE[name]
    bill = SHIPPED.bill("any", name, calls)
    if free is None:
        assert bill == Bill(Pricing.FREE, None, None, Decimal(0), Decimal(0))
        return
    assert bill.free_left == max(0, free - calls)
    if unit is None:
        assert bill.cost == (0 if calls <= free else None)
        return
    assert bill.cost is not None
    assert Fraction(bill.cost) == Fraction(unit) * max(0, calls - free)


def test_an_unpriced_operation_is_reported_as_unpriced() -> None:
    assert SHIPPED.bill("native", "listJobs", 3) == Bill(Pricing.UNPRICED, 0, 0, None, None)


def written(folder: Path, text: str) -> str:
    path = folder / "prices.toml"
    path.write_text(text)
    return str(path)


def test_a_file_replaces_entries_and_says_which_price_counts(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'currency = "EUR"\ncharge = "both"\n[operations.ListSyslogs]\ninput = 0.1\noutput = "0.2"\n'
        '[operations."native/listJobs"]\nfree = 1\ninput = 1\noutput = 0\n',
    )
    prices = load_prices(path)
    assert prices.currency == "EUR"
    assert prices.bill("eflo-controller", "ListSyslogs", 3).cost == Decimal("0.9")
    assert prices.bill("native", "listJobs", 3).cost == 2
    assert prices.bill("other", "listJobs", 3).cost is None
    assert prices.bill("x", "GetUserViewMetrics", 1001).cost == Decimal("0.002")


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "rates = 1",
        "operations = 1",
        "currency = 1",
        'currency = "€"',
        'charge = "none"',
        "[operations.A]\nfree = -1",
        "[operations.A]\nfree = true",
        '[operations.A]\nfree = "many"',
        "[operations.A]\ninput = -1",
        "[operations.A]\ninput = nan",
        "[operations.A]\noutput = inf",
        '[operations.A]\noutput = "x"',
        "[operations.A]\nprice = 1",
        "[operations]\nA = 1",
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"prices\.toml"):
        load_prices(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_prices(str(tmp_path / "none.toml"))
