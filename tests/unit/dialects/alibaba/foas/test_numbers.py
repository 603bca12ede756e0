import json
import math
import re
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.alibaba.foas.answers import convert_number, format_number

SAMPLE = {
    492900000: "4.929E+8",
    493500160: "4.9350016E+8",
    494100352: "494100352",
    494700544: "494700544",
    495300736: "495300736",
    495900896: "495900896",
}
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def _java(value):
    """Format like ``BigDecimal.stripTrailingZeros().toString()``, written from its documentation."""
    shortest = Decimal(repr(value))
    sign, digits, exponent = shortest.as_tuple()
    unscaled = "".join(map(str, digits)).lstrip("0") or "0"
    assert isinstance(exponent, int)
    scale = -exponent
    if unscaled == "0":
        return "0"
    while unscaled.endswith("0"):
        unscaled, scale = unscaled[:-1], scale - 1
    minus = "-" if sign else ""
    adjusted = -scale + len(unscaled) - 1
    if scale == 0:
        return minus + unscaled
    if scale > 0 and adjusted >= -6:
        whole = unscaled.rjust(scale + 1, "0")
        return f"{minus}{whole[:-scale]}.{whole[-scale:]}"
    mantissa = unscaled if len(unscaled) == 1 else f"{unscaled[0]}.{unscaled[1:]}"
    return f"{minus}{mantissa}E{adjusted:+d}"


@pytest.mark.parametrize(("value", "text"), SAMPLE.items())
def test_the_sample(value, text):
    assert format_number(float(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.0, "0"), (0.1, "0.1"), (20.0, "2E+1"), (-2.5, "-2.5"), (1e-6, "0.000001"), (1e-7, "1E-7")],
)
def test_by_hand(value, text):
    assert format_number(value) == text


@given(FINITE)
def test_it_is_javas_and_names_the_number(value):
    text = format_number(value)
    assert text == _java(value)
    assert float(text) == value
    assert re.fullmatch(r"-?\d+(\.\d+)?(E[+-]\d+)?", text)


@given(FINITE)
def test_a_json_number_keeps_its_value(value):
    written = msgspec.json.encode(convert_number(value)).decode()
    read = json.loads(written)
    assert read == value
    assert math.isfinite(read)
    assert not written.endswith(".0") or abs(value) >= 2**53
