"""The parameters of a call: the query of a GET, the JSON body of any other method, whatever its content type.

The vendor's own curl examples send their JSON as ``application/x-www-form-urlencoded``. A body may be absent, ``null``
or ``{}``, and a member that is ``null`` counts as absent. Unknown members are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import MAX_TIME_MS

T = TypeVar("T")
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Arguments:
    """Parameters by their exact name; every reader raises InvalidRequestError naming the invalid one."""

    def __init__(self, call: Call) -> None:
        self._values: Mapping[str, Any] = (
            dict(reversed(call.parameters)) if call.method == "GET" else _decoded(call.body)
        )

    def integer(self, name: str, lowest: int, highest: int) -> int | None:
        """Return a whole number within bounds; None if it is absent."""
        value = self._values.get(name)
        if value is None:
            return None
        number = _whole(value)
        if number is None or not lowest <= number <= highest:
            raise InvalidRequestError(f"{name} must be a whole number from {lowest} to {highest}", name)
        return number

    def time(self, name: str) -> int | None:
        """Return a time in epoch milliseconds."""
        return self.integer(name, 0, MAX_TIME_MS)

    def text(self, name: str) -> str | None:
        """Return a text."""
        return self._typed(name, str, "a text")

    def texts(self, name: str) -> Sequence[str]:
        """Return a list of texts; empty if it is absent."""
        return self._typed(name, list[str], "a list of texts") or ()

    def objects(self, name: str) -> Sequence[dict[str, Any]]:
        """Return a list of objects; empty if it is absent."""
        return self._typed(name, list[dict[str, Any]], "a list of objects") or ()

    def object(self, name: str) -> dict[str, Any] | None:
        """Return an object."""
        return self._typed(name, dict[str, Any], "an object")

    def choice(self, name: str, choices: Mapping[str, T]) -> T | None:
        """Return the meaning of a word, case-insensitive."""
        text = self.text(name)
        if text is None:
            return None
        found = {word.casefold(): value for word, value in choices.items()}.get(text.casefold())
        if found is None:
            raise InvalidRequestError(f"{name} {text[:64]!r} is not one of {', '.join(choices)}", name)
        return found

    def _typed(self, name: str, shape: type[T], what: str) -> T | None:
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"{name} must be {what}", name) from error


def _decoded(body: bytes) -> Mapping[str, Any]:
    if not body.strip():
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError("the body is not a JSON object", "body") from error


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
