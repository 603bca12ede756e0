"""Formats numbers as Prometheus does."""

import math
from decimal import Decimal


def format_plain(value: float) -> str:
    """Return the shortest decimal form of a number, without an exponent."""
    special = _format_non_finite(value)
    if special:
        return special
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_number(value: float) -> str:
    """Return a number in the form of answers: with an exponent from 1e21 on and below 1e-6."""
    text = repr(value)
    if text.endswith(".0"):
        return text[:-2]
    if "e" not in text and "n" not in text:
        return text
    special = _format_non_finite(value)
    if special:
        return special
    if value and not 1e-6 <= abs(value) < 1e21:
        digits, exponent = repr(float(value)).split("e") if "e" in repr(value) else (f"{value:e}").split("e")
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        return f"{digits}e{int(exponent):+03d}"
    return format_plain(value)


def _format_non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return ""
