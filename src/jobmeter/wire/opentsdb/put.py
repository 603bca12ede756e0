"""Parses bodies of ``/api/put``: a data point, or an array of data points.

https://opentsdb.net/docs/build/html/api_http/put.html
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.memory import Take, reserve_unlimited
from jobmeter.wire.json_shape import count_json

_DESCRIBED_BYTES = 256
"""Bytes of an answer for each rejected data point, beside the data point itself."""


class DataPoint(msgspec.Struct, frozen=True):
    """A data point as received. It is validated later."""

    metric: str | None = None
    timestamp: int | float | str | None = None
    value: int | float | str | bool | None = None
    tags: dict[str, str | int | float | bool | None] | None = None

    def describe(self) -> dict[str, Any]:
        """Return the data point as an answer repeats it: the value always as text."""
        return {
            "metric": self.metric,
            "timestamp": self.timestamp,
            "value": None if self.value is None else _text(self.value),
            "tags": self.format_tags(),
        }

    def format_tags(self) -> dict[str, str]:
        """Return the tags. Numbers and truth values become text."""
        return {name: _text(value) for name, value in (self.tags or {}).items() if value is not None}


_ARRAY = msgspec.json.Decoder(list[DataPoint])
_ONE = msgspec.json.Decoder(DataPoint)


def decode(body: bytes, most: int, take: Take = reserve_unlimited) -> Sequence[DataPoint]:
    """Return the data points of a body. ``take`` is called with the bytes that they need, before they are made.

    ``take`` may raise. Raises InvalidRequestError if the body is not JSON of data points, LimitExceededError for more
    than ``most``.
    """
    stripped = body.lstrip()
    if not stripped:
        raise InvalidRequestError("Missing request content", "body")
    shape = count_json(body)
    shape.check(1, most, "points")
    take(shape.read_bytes + shape.opened[1] * _DESCRIBED_BYTES)
    try:
        return _ARRAY.decode(body) if stripped.startswith(b"[") else [_ONE.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _parse_leniently(body, error)


def _parse_leniently(body: bytes, problem: Exception) -> Sequence[DataPoint]:
    """Parse a body that is not strict JSON, so that data points with NaN and Infinity are rejected one by one."""
    try:
        found = json.loads(body, parse_constant=str)
        return msgspec.convert(found if isinstance(found, list) else [found], list[DataPoint])
    except (ValueError, RecursionError, msgspec.ValidationError):
        raise InvalidRequestError(f"Unable to parse the given JSON: {problem}", "body") from problem


def _text(value: float | str | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
