"""Reads parameters of a call: query strings and JSON bodies."""

from typing import TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import MissingFieldError
from jobmeter.errors import InvalidRequestError

T = TypeVar("T")


def flag(call: Call, name: str) -> bool:
    """Return True if the parameter is present, unless its value is ``false``."""
    value = call.parameter(name)
    return value is not None and value.strip().lower() != "false"


def required(call: Call, name: str) -> str:
    """Return a parameter that must not be empty. Raises MissingFieldError."""
    value = call.parameter(name)
    if not value:
        raise MissingFieldError(f"Missing parameter <code>{name}</code>", name)
    return value


def whole(text: str | int | None, name: str, default: int, most: int) -> int:
    """Return a whole number from 0 to ``most``; a larger one becomes ``most``. Raises InvalidRequestError."""
    if text in {None, ""}:
        return default
    try:
        number = int(text or 0)
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidRequestError(f"Unable to parse '{name}' as a number", name)
    return min(number, most)


def json_body(call: Call, kind: type[T]) -> T:
    """Decode the body as ``kind``, for any content type. Raises InvalidRequestError (field ``body``)."""
    if not call.body.strip():
        raise InvalidRequestError("Missing request content", "body")
    try:
        return msgspec.json.decode(call.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"Unable to parse the given JSON: {error}", "body") from error
