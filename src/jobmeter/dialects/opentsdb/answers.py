"""Successful answers."""

from typing import Any

import msgspec

from jobmeter.dialects.base import Answer
from jobmeter.dialects.opentsdb.errors import JSON


def answer(body: Any, status: int = 200) -> Answer:  # noqa: ANN401 - whatever JSON has a form for
    """Return a body in JSON."""
    return Answer(status, msgspec.json.encode(body), (), JSON)
