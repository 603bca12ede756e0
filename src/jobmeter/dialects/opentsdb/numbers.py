"""Formats numbers for OpenTSDB: whole numbers without a fraction, NaN as text because JSON has no NaN."""

import math

_WHOLE = 2.0**63


def format_number(value: float) -> str:
    """Return the shortest text that reads back as the number."""
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)


def encode_number(value: float, *, null: bool) -> str:
    """Encode a value in JSON. A value that is not finite becomes null if ``null``, else ``"NaN"``."""
    if math.isfinite(value):
        return format_number(value)
    return "null" if null else '"NaN"'
