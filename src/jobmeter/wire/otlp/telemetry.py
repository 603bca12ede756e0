"""Shared by requests of spans and of log records: resources, attributes, and their bounds."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.span import MOST_BYTES, MOST_PARTS, Attributes, SpanScope
from jobmeter.wire.otlp.values import pair, utf8
from jobmeter.wire.protobuf import fields, varint

T = TypeVar("T")

MOST_SHARED = 32 * 1_024
"""Largest resource, and largest scope, as they were sent: they are stored again with each span."""
MOST_TOTAL = 256 * 2**20
"""Most bytes of the spans of a request, each with its resource and its scope."""
_MOST_FIELDS = 4 * MOST_PARTS
"""Fields of a message, of all kinds."""
Span = tuple[int, int]
Pieces = Sequence[Span]


class Part(Protocol):
    """A message, which ``bytes`` gives in protocol buffers. Its length is that of what was sent."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


Scoped = tuple[Part, Part, Sequence[Part]]
"""A resource, a scope, and the items of both."""
Make = Callable[[bytes, Attributes, SpanScope], T]
"""An item of its message, the attributes of its resource, and its scope. Raises RefusedError."""


class Group(msgspec.Struct, Generic[T], frozen=True):
    """Items of one resource and one scope."""

    resource: Attributes
    scope: SpanScope
    items: list[T]


@dataclass(slots=True)
class Sent(Generic[T]):
    """The content of a request: its items by resource and scope, and how many were refused, by reason."""

    most: int
    groups: list[Group[T]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    _items: int = 0
    _total: int = 0

    def count(self, size: int) -> None:
        """Count an item of so many bytes. Raises LimitExceededError (field ``body``)."""
        self._items += 1
        self._total += size
        self.check(self._items)
        if self._total > MOST_TOTAL:
            raise LimitExceededError(
                f"spans or log records may have {MOST_TOTAL} bytes together, each with its resource", "body"
            )

    def check(self, number: int) -> None:
        """Raises LimitExceededError (field ``body``) for more items than a request may bring."""
        if number > self.most:
            raise LimitExceededError(f"a request may bring {self.most} spans or log records", "body")


class RefusedError(Exception):
    """One item cannot be stored, for ``reason``; the others can."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_size(size: int) -> None:
    """Raises RefusedError for an item that is too large."""
    if size > MOST_BYTES:
        raise RefusedError("too-large")


def check_many(count: int) -> None:
    """Raises RefusedError for too many attributes, events or links."""
    if count > MOST_PARTS:
        raise RefusedError("too-many-parts")


def identifier(text: str, digits: int, *, empty: bool = False) -> str:
    """An id in lower-case hexadecimal digits. Raises RefusedError for one of another length, or of zeros alone."""
    found = text.lower()
    if empty and not found.strip("0"):
        return ""
    if len(found) != digits or not found.strip("0") or found.strip("0123456789abcdef"):
        raise RefusedError("id")
    return found


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    """The value as JSON can hold it: a number that is not finite becomes a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value


def attributes(data: bytes, pieces: Iterable[Span]) -> dict[str, Any]:
    """The attributes at these places of a message. Raises RefusedError."""
    found: dict[str, Any] = {}
    try:
        for at, end in pieces:
            key, value = pair(data, at, end)
            found[key] = plain(value)
    except InvalidRequestError as error:
        if error.field == "body":
            raise
        raise RefusedError("attributes") from error
    check_many(len(found))
    return found


def merged(data: bytes, pieces: Pieces) -> bytes:
    """One message of the pieces in which it came."""
    return data[pieces[0][0] : pieces[0][1]] if len(pieces) == 1 else b"".join(data[at:end] for at, end in pieces)


def by_tag(data: bytes, at: int = 0, end: int | None = None) -> dict[int, list[Span]]:
    """The places of the fields of a message by tag. Raises InvalidRequestError (field ``body``), RefusedError."""
    found: dict[int, list[Span]] = {}
    for number, (tag, _, content, stop) in enumerate(fields(data, at, len(data) if end is None else end)):
        if number >= _MOST_FIELDS:
            raise RefusedError("too-many-parts")
        found.setdefault(tag, []).append((content, stop))
    return found


def text(data: bytes, found: Mapping[int, Pieces], tag: int) -> str:
    """The text of a field, the last one counting."""
    if tag not in found:
        return ""
    at, end = found[tag][-1]
    return utf8(data[at:end], "body")


def whole(data: bytes, found: Mapping[int, Pieces], tag: int) -> int:
    """The whole number of a field that is a varint."""
    return varint(data, *found[tag][-1])[0] if tag in found else 0


def fixed(data: bytes, found: Mapping[int, Pieces], tag: int) -> int:
    """The whole number of a field of fixed length."""
    if tag not in found:
        return 0
    at, end = found[tag][-1]
    return int.from_bytes(data[at:end], "little")


def count32(value: int) -> int:
    """A varint truncated to 32 bits."""
    return value & 0xFFFF_FFFF


_ATTRIBUTES, _NAME, _VERSION, _SCOPE_ATTRIBUTES = 0x0A, 0x0A, 0x12, 0x1A
_FIRST, _SECOND = 0x0A, 0x12


def scopes(data: bytes, sent: Sent[Any]) -> Iterator[Scoped]:
    """The scopes of a request in protocol buffers; each counts as an item of ``sent``.

    Requests of spans and of log records are of the same form.
    """
    for at, end in _places(data, 0, len(data), sent)[0]:
        resources, parts = _places(data, at, end, sent)
        resource = merged(data, resources or [(0, 0)])
        for begin, stop in parts:
            sent.count(0)
            named, found = _places(data, begin, stop, sent)
            yield resource, merged(data, named or [(0, 0)]), [data[first:last] for first, last in found]


def collect(sent: Sent[T], scopes: Iterable[Scoped], make: Make[T], *, repeated: bool) -> Sent[T]:
    """``sent`` with the items of some scopes; ``repeated``: each item is stored with what its scope shares.

    Raises InvalidRequestError (field ``body``) for what is no such message, LimitExceededError for too much of it.
    """
    for resource, scope, items in scopes:
        try:
            own, made = _shared(resource, scope)
        except RefusedError as error:
            sent.check(len(items))
            sent.refused[error.reason] += len(items)
            continue
        size = len(resource) + len(scope) if repeated else 0
        group: Group[T] = Group(own, made, [])
        for item in items:
            sent.count(len(item) + size)
            try:
                check_size(len(item))
                group.items.append(make(bytes(item), own, made))
            except RefusedError as error:
                sent.refused[error.reason] += 1
        sent.groups.append(group)
    return sent


def _places(data: bytes, at: int, end: int, sent: Sent[Any]) -> tuple[list[Span], list[Span]]:
    """The places of the fields 1 and 2 of a message."""
    first, second = list[Span](), list[Span]()
    for number, (tag, _, content, stop) in enumerate(fields(data, at, end)):
        sent.check(number)
        if tag == _FIRST:
            first.append((content, stop))
        elif tag == _SECOND:
            second.append((content, stop))
    return first, second


def _shared(resource: Part, scope: Part) -> tuple[Attributes, SpanScope]:
    """The shared fields of the items of a scope. Raises RefusedError where these are too large."""
    if len(resource) > MOST_SHARED or len(scope) > MOST_SHARED:
        raise RefusedError("resource-too-large")
    resource, scope = bytes(resource), bytes(scope)
    own, of_scope = by_tag(resource), by_tag(scope)
    made = SpanScope(
        name=text(scope, of_scope, _NAME),
        version=text(scope, of_scope, _VERSION),
        attributes=attributes(scope, of_scope.get(_SCOPE_ATTRIBUTES, ())),
    )
    return attributes(resource, own.get(_ATTRIBUTES, ())), made
