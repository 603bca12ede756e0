"""Numbers as foas writes them."""

from decimal import Decimal

_WHOLE = 2.0**53


def number_text(value: float) -> str:
    """The value of a point: ``494100352``, ``4.929E+8``, ``0.25``.

    It is what ``BigDecimal.stripTrailingZeros().toString()`` of Java gives for the shortest decimal that names the
    number: plain digits, but with an exponent where zeros were stripped before the point, or for less than 0.000001.
    """
    if value == 0:
        return "0"
    return str(Decimal(repr(float(value))).normalize())


def number(value: float) -> int | float:
    """A JSON number, without a fraction where it has none."""
    return int(value) if value.is_integer() and abs(value) < _WHOLE else value
