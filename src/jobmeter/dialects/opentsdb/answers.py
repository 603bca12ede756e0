"""Successful answers."""

import math
from typing import Any

import msgspec

from jobmeter.dialects.base import Answer
from jobmeter.dialects.opentsdb.errors import JSON

_WHOLE = 2.0**63


def text_of(value: float) -> str:
    """Return the shortest text that reads back as the number."""
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)


def json_of(value: float, *, null: bool) -> str:
    """Encode a value in JSON; an absent one is ``"NaN"``, or null with that fill policy."""
    if math.isfinite(value):
        return text_of(value)
    return "null" if null else '"NaN"'


def answer(body: Any, status: int = 200) -> Answer:  # noqa: ANN401 - whatever JSON has a form for
    """Return a body in JSON."""
    return Answer(status, msgspec.json.encode(body), (), JSON)
