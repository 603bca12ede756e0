"""Query parameters: the table that documents them, and reading them. Every refusal names its parameter."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import parse_duration, parse_time

T = TypeVar("T")
MAX_LIST = 1000


class QueryArguments(msgspec.Struct, frozen=True):
    """Query parameter. ``text`` gives its meaning, form and default; ``many`` may repeat or be comma separated."""

    name: str
    text: str
    type: Literal["string", "integer"] = "string"
    many: bool = False
    required: bool = False
    example: str = ""


REPLICA = QueryArguments("replica", "Only these replicas.", many=True, example="worker-0")
DEVICE = QueryArguments("device", "Only these devices.", many=True)
CLUSTER = QueryArguments("cluster", "The node's cluster, if nodes in several clusters share a name.")
RANGE = (
    QueryArguments("start", "First moment."),
    QueryArguments("end", "End, itself not included."),
    QueryArguments("since", "Instead of start: duration before the end, or before now.", example="1h"),
)


class Arguments:
    """Query parameters of one call, checked against the table of allowed ones."""

    def __init__(self, allowed: Mapping[str, QueryArguments], given: Sequence[tuple[str, str]]) -> None:
        """``allowed`` maps names to parameters.

        Raises InvalidRequestError for an unknown parameter, or a repeated one that may not repeat.
        """
        self._values: dict[str, list[str]] = {}
        for name, value in given:
            query = allowed.get(name)
            if query is None:
                names = ", ".join(allowed) or "there are none"
                raise InvalidRequestError(f"unknown query parameter {name[:100]!r} (allowed: {names})", name[:100])
            if name not in self._values:
                self._values[name] = [value]
            elif query.many:
                self._values[name].append(value)
            else:
                raise InvalidRequestError(f"{name} is given more than once", name)
        for query in allowed.values():
            if query.required and not any(self._values.get(query.name, ())):
                raise InvalidRequestError(f"{query.name} is required", query.name)

    def read_text(self, name: str, default: str = "") -> str:
        """Return the value; the default when it is absent or empty."""
        values = self._values.get(name)
        return (values[0] if values else "") or default

    def read_texts(self, name: str) -> tuple[str, ...]:
        """Return every value once, in order; values may be repeated or comma separated."""
        values = self._values.get(name)
        if values is None:
            return ()
        parts = [part.strip() for value in values for part in value.split(",")]
        found = tuple(dict.fromkeys(filter(None, parts)))
        if len(found) > MAX_LIST:
            raise InvalidRequestError(f"{name} has {len(found)} values, more than {MAX_LIST}", name)
        return found

    def read_integer(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``."""
        text = self.read_text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise InvalidRequestError(f"{name} {text[:100]!r} is not a whole number from {low} to {high}", name)
        return int(text)

    def read_time(self, name: str) -> int | None:
        """Parse ISO 8601 or epoch milliseconds to epoch milliseconds."""
        text = self.read_text(name)
        return parse_time(text, name) if text else None

    def read_duration(self, name: str) -> int | None:
        """Parse a duration like ``5m`` to milliseconds."""
        text = self.read_text(name)
        return parse_duration(text, name) if text else None

    def read_times(self) -> tuple[int | None, int | None, int | None]:
        """Return ``start``, ``end`` (epoch milliseconds) and ``since`` (milliseconds before the end), or None."""
        start, end, since = self.read_time("start"), self.read_time("end"), self.read_duration("since")
        if start is not None and since is not None:
            raise InvalidRequestError("give start or since, not both", "since")
        return start, end, since

    def read_flag(self, name: str, *, default: bool = False) -> bool:
        """Parse ``true`` or ``false``."""
        return self.read_choice(name, {"true": True, "false": False}, "true" if default else "false")

    def is_descending(self, default: str = "asc") -> bool:
        """True for ``desc``, False for ``asc``."""
        return self.read_choice("order", {"asc": False, "desc": True}, default)

    def read_choice(self, name: str, choices: Mapping[str, T], default: str) -> T:
        """Return the value of one of the allowed words."""
        return choose(self.read_text(name, default), choices, name)

    def read_choices(self, name: str, allowed: Iterable[T]) -> frozenset[T]:
        """Return the given words; ``allowed`` are words or an enumeration. Raises InvalidRequestError naming them."""
        words = {str(one): one for one in allowed}
        return frozenset(choose(text, words, name) for text in self.read_texts(name))


def choose(text: str, choices: Mapping[str, T], field: str) -> T:
    """Return the value that a word maps to. Raises InvalidRequestError naming ``field`` and the allowed words."""
    if text not in choices:
        raise InvalidRequestError(f"{field} {text[:100]!r} is not one of {', '.join(choices)}", field)
    return choices[text]
