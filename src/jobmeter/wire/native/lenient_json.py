"""Reads the JSON of a newer sender, without the fields and words that this release does not know."""

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")
_MOST = 16
"""Most fields and words that are removed from one payload."""
_LONGEST = 200
_FIELD = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WORD = re.compile(
    r"Invalid enum value '(?P<word>.*)' - at `\$(?P<path>.*)(?:\.(?P<name>\w+)|\[(?P<place>\d+)\])`", re.DOTALL
)
_STEP = re.compile(r"\.(\w+)|\[(?:\d+|\.\.\.)\]")


def decode_lenient(data: bytes, kind: type[T]) -> tuple[T, tuple[str, ...]]:
    """Return the object, and the names of removed parts: fields, and words (``jobs.state='Paused'``).

    Raises msgspec.ValidationError for any other fault, and if more than 16 names would be removed; msgspec.DecodeError,
    UnicodeDecodeError and RecursionError for invalid JSON.
    """
    try:
        return msgspec.json.decode(data, type=kind), ()
    except msgspec.ValidationError as error:
        if not (_FIELD.fullmatch(str(error)) or _WORD.fullmatch(str(error))):
            raise
        document = msgspec.json.decode(data)
    left_out: list[str] = []
    while True:
        try:
            return msgspec.convert(document, kind), tuple(left_out)
        except msgspec.ValidationError as error:
            name = _leave_out(document, str(error)) if len(left_out) < _MOST else None
            if name is None:
                raise
            left_out.append(name)


def _leave_out(document: object, message: str) -> str | None:
    """Remove the field or word that an error names from its path. Return its name; None for another error."""
    if found := _FIELD.fullmatch(message):
        path, name = found["path"] or "", found["name"]
        for parent in _find_at(document, path):
            if isinstance(parent, dict):
                parent.pop(name, None)
        return _name(path, name)
    if found := _WORD.fullmatch(message):
        path, word = found["path"], found["word"]
        for parent in _find_at(document, path):
            if isinstance(parent, dict) and parent.get(found["name"]) == word:
                del parent[found["name"]]
            elif isinstance(parent, list) and found["place"] and parent[int(found["place"]) :][:1] == [word]:
                parent[int(found["place"])] = None
        return _name(path, f"{found['name'] or found['place']}={word!r}")
    return None


def _name(path: str, last: str) -> str:
    return ".".join([*(match[1] for match in _STEP.finditer(path) if match[1]), last])[:_LONGEST]


def _find_at(document: object, path: str) -> list[object]:
    found = [document]
    for step in _STEP.finditer(path):
        found = [inner for outer in found for inner in _list_members(outer, step[1])]
    return found


def _list_members(outer: object, name: str | None) -> list[object]:
    if isinstance(outer, dict):
        return list(outer.values()) if name is None else [outer[name]] if name in outer else []
    return list(outer) if isinstance(outer, list) and name is None else []
