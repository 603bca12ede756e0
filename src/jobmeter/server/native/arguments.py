"""Query parameters: the table that documents them, and reading them with every refusal naming its parameter."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, cast

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import parse_duration, parse_time

T = TypeVar("T")
MAX_LIST = 1000


class Query(msgspec.Struct, frozen=True):
    """One query parameter. ``text`` gives its meaning, form and default; ``many`` may repeat or be comma separated."""

    name: str
    text: str
    type: Literal["string", "integer"] = "string"
    many: bool = False
    required: bool = False
    example: str = ""
    moment: bool = False
    """Of another value in each asking: a time."""


class Arguments:
    """The query parameters of one call, against the table of those that are allowed."""

    def __init__(self, allowed: Sequence[Query], given: Sequence[tuple[str, str]]) -> None:
        """Raises InvalidRequestError for one that is unknown, or repeated where that means nothing."""
        table = {query.name: query for query in allowed}
        self._values: dict[str, list[str]] = {}
        self._made: dict[Callable[[Arguments], object], object] = {}
        for name, value in given:
            query = table.get(name)
            if query is None:
                names = ", ".join(table) or "there are none"
                raise InvalidRequestError(f"there is no query parameter {name[:100]!r} here ({names})", name[:100])
            if name in self._values and not query.many:
                raise InvalidRequestError(f"{name} is given more than once", name)
            self._values.setdefault(name, []).append(value)
        for query in allowed:
            if query.required and not any(self._values.get(query.name, ())):
                raise InvalidRequestError(f"{query.name} is required", query.name)

    def at(self, moments: Mapping[str, str]) -> "Arguments":
        """The same with these times, none of which is repeated; what was made ``once`` of the others stays."""
        made = Arguments.__new__(Arguments)
        made._values = {**self._values, **{name: [value] for name, value in moments.items()}}  # noqa: SLF001 - one of ours
        made._made = self._made  # noqa: SLF001 - one of ours
        return made

    def once(self, make: Callable[["Arguments"], T]) -> T:
        """What a function makes of them, made once: of nothing else, and of no time; nor is it changed afterwards."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    def text(self, name: str, default: str = "") -> str:
        """The value; the default when it is absent or empty."""
        values = self._values.get(name)
        return (values[0] if values else "") or default

    def texts(self, name: str) -> tuple[str, ...]:
        """Every value, repeated ones and comma separated ones, in order, each once."""
        values = self._values.get(name)
        if values is None:
            return ()
        parts = [part.strip() for value in values for part in value.split(",")]
        found = tuple(dict.fromkeys(part for part in parts if part))
        if len(found) > MAX_LIST:
            raise InvalidRequestError(f"{name} has {len(found)} values, more than {MAX_LIST}", name)
        return found

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise InvalidRequestError(f"{name} {text[:100]!r} is not a whole number from {low} to {high}", name)
        return int(text)

    def time(self, name: str) -> int | None:
        """Epoch milliseconds of ISO 8601 or epoch milliseconds."""
        text = self.text(name)
        return parse_time(text, name) if text else None

    def duration(self, name: str) -> int | None:
        """Milliseconds of ``5m``."""
        text = self.text(name)
        return parse_duration(text, name) if text else None

    def choice(self, name: str, choices: Mapping[str, T], default: str) -> T:
        """One of a few words."""
        return choose(self.text(name, default), choices, name)

    def choices(self, name: str, convert: Callable[[str], T]) -> frozenset[T]:
        """Several words; ``convert`` raises ValueError for one that is none."""
        found = set()
        for text in self.texts(name):
            try:
                found.add(convert(text))
            except ValueError as error:
                raise InvalidRequestError(f"{name} {text[:100]!r} is unknown", name) from error
        return frozenset(found)


def choose(text: str, choices: Mapping[str, T], field: str) -> T:
    """What a word stands for. Raises InvalidRequestError naming ``field`` and the words there are."""
    if text not in choices:
        raise InvalidRequestError(f"{field} {text[:100]!r} is not one of {', '.join(choices)}", field)
    return choices[text]
