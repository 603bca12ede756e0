"""Formats numbers for OpenTSDB: whole ones without a fraction, NaN as a text because JSON has no form for it."""

import math

_WHOLE = 2.0**63


def format_number(value: float) -> str:
    """Return the shortest text that reads back as the number."""
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)


def encode_number(value: float, *, null: bool) -> str:
    """Encode a value in JSON; an absent one is ``"NaN"``, or null with that fill policy."""
    if math.isfinite(value):
        return format_number(value)
    return "null" if null else '"NaN"'
