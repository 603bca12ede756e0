"""Pages of a list. Their objects are undecoded, so that one invalid object does not hide the others."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{},]')
_ITEMS = re.compile(rb'"items"\s*:\s*\[')


@dataclass(frozen=True, slots=True)
class Page:
    """Page: objects, the version of the list, and the token of the next page, empty on the last one."""

    items: Sequence[msgspec.Raw | bytes]
    version: str
    token: str


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _Metadata = _Metadata()


def read_page(body: bytes) -> Page:
    """Read a page. Raises msgspec.DecodeError or UnicodeDecodeError for an invalid page."""
    try:
        page = msgspec.json.decode(body, type=_List)
    except RecursionError:
        # An object is nested too deeply for this reader: the API server allows ten times as much.
        return _read_apart(body)
    return Page(page.items or (), page.metadata.resource_version, page.metadata.continue_)


def _read_apart(body: bytes) -> Page:
    """Read a page whose objects cannot be decoded together: split them by counting brackets."""
    for begin in _ITEMS.finditer(body):
        items, end = [], begin.end()
        for item, after in _elements(body, begin.end()):
            items.append(item)
            end = after
        try:
            rest = msgspec.json.decode(body[: begin.end()] + body[end:], type=_List)
        except (msgspec.DecodeError, RecursionError):
            continue
        if rest.items is not None:  # otherwise these are the items of something inside the page
            return Page(items, rest.metadata.resource_version, rest.metadata.continue_)
    raise msgspec.DecodeError("a page of a list has no items")


def _elements(body: bytes, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield the elements of an array that begins at ``start``, each with the position after it."""
    depth, first = 0, start
    for match in _TOKEN.finditer(body, start):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
        elif depth and token in (b"}", b"]"):
            depth -= 1
        elif not depth and token in (b",", b"]"):
            if element := body[first : match.start()].strip():
                yield element, match.start()
            if token == b"]":
                return
            first = match.end()
