"""Shared parts of requests of spans and of log records: resources, attributes, and their bounds."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.span import MOST_BYTES, MOST_PARTS, Attributes, SpanScope
from jobmeter.wire.otlp.values import decode_text, parse_pair
from jobmeter.wire.protobuf import iterate_fields, read_varint

T = TypeVar("T")

MOST_SHARED = 32 * 1_024
"""Most bytes of a resource, and of a scope: they are stored again with each span."""
MOST_TOTAL = 256 * 2**20
"""Most bytes of the spans of a request, each with its resource and its scope."""
_MOST_FIELDS = 4 * MOST_PARTS
"""Most fields of a message, of all kinds."""
Span = tuple[int, int]


class TelemetryPart(Protocol):
    """A message. ``bytes`` converts it to protocol buffers; ``len`` is the length of the original."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


Scoped = tuple[TelemetryPart, TelemetryPart, Sequence[TelemetryPart]]
"""A resource, a scope, and their items."""
Make = Callable[[bytes, Attributes, SpanScope], T]
"""Makes an item from its message, the attributes of its resource, and its scope. Raises TelemetryRefusedError."""


class Group(msgspec.Struct, Generic[T], frozen=True):
    """Items of one resource and one scope."""

    resource: Attributes
    scope: SpanScope
    items: list[T]


@dataclass(slots=True)
class Sent(Generic[T]):
    """The content of a request: its items by resource and scope, and the number of rejected items by reason."""

    most: int
    groups: list[Group[T]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    _items: int = 0
    _total: int = 0

    def count(self, size: int) -> None:
        """Count an item of ``size`` bytes. Raises LimitExceededError (field ``body``)."""
        self._items += 1
        self._total += size
        self.check(self._items)
        if self._total > MOST_TOTAL:
            raise LimitExceededError(
                f"spans or log records may have at most {MOST_TOTAL} bytes together, each with its resource", "body"
            )

    def check(self, number: int) -> None:
        """Raise LimitExceededError (field ``body``) for more items than a request may bring."""
        if number > self.most:
            raise LimitExceededError(f"a request may bring at most {self.most} spans or log records", "body")


class TelemetryRefusedError(Exception):
    """Rejects a single item for ``reason``. The other items are stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_size(size: int) -> None:
    """Raise TelemetryRefusedError for an item that is too large."""
    if size > MOST_BYTES:
        raise TelemetryRefusedError("too-large")


def check_many(count: int) -> None:
    """Raise TelemetryRefusedError for too many attributes, events or links."""
    if count > MOST_PARTS:
        raise TelemetryRefusedError("too-many-parts")


def simplify(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    """Return the value in a form that JSON can hold: a number that is not finite becomes a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [simplify(one) for one in value]
    if isinstance(value, dict):
        return {key: simplify(one) for key, one in value.items()}
    return value


class TelemetryFields:
    """The fields of a message by tag. If a single field repeats, its last occurrence counts."""

    def __init__(self, data: bytes) -> None:
        """Raises InvalidRequestError (field ``body``), or TelemetryRefusedError for too many fields."""
        self._data = data
        self._places: dict[int, list[Span]] = {}
        for number, (tag, _, content, stop) in enumerate(iterate_fields(data, 0, len(data))):
            if number >= _MOST_FIELDS:
                raise TelemetryRefusedError("too-many-parts")
            self._places.setdefault(tag, []).append((content, stop))

    def read_content(self, tag: int) -> bytes:
        """Return the content of a field; empty for an absent field."""
        if tag not in self._places:
            return b""
        at, end = self._places[tag][-1]
        return self._data[at:end]

    def read_text(self, tag: int) -> str:
        """Return the text of a field."""
        return decode_text(self.read_content(tag), "body")

    def count(self, tag: int) -> int:
        """Return the whole number of a varint field, truncated to 32 bits."""
        return read_varint(self._data, *self._places[tag][-1])[0] & 0xFFFF_FFFF if tag in self._places else 0

    def read_fixed(self, tag: int) -> int:
        """Return the whole number of a field of fixed length."""
        return int.from_bytes(self.read_content(tag), "little")

    def read_message(self, tag: int) -> bytes:
        """Return the message of a field, its pieces joined."""
        return b"".join(self.read_messages(tag))

    def read_messages(self, tag: int) -> list[bytes]:
        """Return the messages of a repeated field."""
        return [self._data[at:end] for at, end in self._places.get(tag, ())]

    def read_attributes(self, tag: int) -> dict[str, Any]:
        """Return the attributes of a field. Raises TelemetryRefusedError."""
        found: dict[str, Any] = {}
        try:
            for at, end in self._places.get(tag, ()):
                key, value = parse_pair(self._data, at, end)
                found[key] = simplify(value)
        except InvalidRequestError as error:
            if error.field == "body":
                raise
            raise TelemetryRefusedError("attributes") from error
        check_many(len(found))
        return found


_ATTRIBUTES, _NAME, _VERSION, _SCOPE_ATTRIBUTES = 0x0A, 0x0A, 0x12, 0x1A
_FIRST, _SECOND = 0x0A, 0x12


def list_scopes(data: bytes, sent: Sent[Any]) -> Iterator[Scoped]:
    """Yield the scopes of a request in protocol buffers; each counts as an item of ``sent``.

    Requests of spans and of log records have the same form.
    """
    for at, end in _places(data, 0, len(data), sent)[0]:
        resources, parts = _places(data, at, end, sent)
        resource = _join_pieces(data, resources)
        for begin, stop in parts:
            sent.count(0)
            named, found = _places(data, begin, stop, sent)
            yield resource, _join_pieces(data, named), [data[first:last] for first, last in found]


def _join_pieces(data: bytes, pieces: Sequence[Span]) -> bytes:
    """Join the pieces of a message."""
    return b"".join([data[at:end] for at, end in pieces])


def collect(sent: Sent[T], scopes: Iterable[Scoped], make: Make[T], *, repeated: bool) -> Sent[T]:
    """Add the items of some scopes to ``sent``; ``repeated``: each item is stored together with its scope.

    Raises InvalidRequestError (field ``body``) for any other message, LimitExceededError for too much content.
    """
    for resource, scope, items in scopes:
        try:
            own, made = _read_shared(resource, scope)
        except TelemetryRefusedError as error:
            sent.refused[error.reason] += len(items)
            continue
        size = len(resource) + len(scope) if repeated else 0
        group: Group[T] = Group(own, made, [])
        for item in items:
            sent.count(len(item) + size)
            try:
                check_size(len(item))
                group.items.append(make(bytes(item), own, made))
            except TelemetryRefusedError as error:
                sent.refused[error.reason] += 1
        sent.groups.append(group)
    return sent


def _places(data: bytes, at: int, end: int, sent: Sent[Any]) -> tuple[list[Span], list[Span]]:
    """Return the spans of the fields 1 and 2 of a message."""
    first, second = list[Span](), list[Span]()
    for number, (tag, _, content, stop) in enumerate(iterate_fields(data, at, end)):
        sent.check(number)
        if tag == _FIRST:
            first.append((content, stop))
        elif tag == _SECOND:
            second.append((content, stop))
    return first, second


def _read_shared(resource: TelemetryPart, scope: TelemetryPart) -> tuple[Attributes, SpanScope]:
    """Return the shared fields of the items of a scope. Raises TelemetryRefusedError if they are too large."""
    if len(resource) > MOST_SHARED or len(scope) > MOST_SHARED:
        raise TelemetryRefusedError("resource-too-large")
    own, of_scope = TelemetryFields(bytes(resource)), TelemetryFields(bytes(scope))
    made = SpanScope(
        name=of_scope.read_text(_NAME),
        version=of_scope.read_text(_VERSION),
        attributes=of_scope.read_attributes(_SCOPE_ATTRIBUTES),
    )
    return own.read_attributes(_ATTRIBUTES), made
