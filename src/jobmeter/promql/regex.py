"""Regular expressions with RE2's syntax, through Arrow: time linear in the text, no look-around, no references."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Bools

if TYPE_CHECKING:
    import pyarrow as pa

_PLACE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")
_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\((\?P?<(\w+)>|(?!\?))", re.DOTALL)
_MOST_PLACES = 9
_SPECIAL = re.compile(r"[\\.+*?()\[\]{}^$]")
"""Any character that has a meaning in an expression, except ``|``."""


def _anchor(pattern: str) -> str:
    return f"^(?s:{pattern})$"


def _array(texts: Sequence[str]) -> "pa.StringArray":
    """Return the texts as Arrow's array. Arrow's own conversions would import an installed pandas."""
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for servers that nobody asks with expressions

    sizes = [len(text) if text.isascii() else len(text.encode()) for text in texts]
    offsets = np.cumsum([0, *sizes], dtype=np.int32).tobytes()
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer("".join(texts).encode()))


def match_texts(pattern: str, texts: Sequence[str]) -> Bools:
    """Mark the texts that the expression matches as a whole. Raises InvalidRequestError if RE2 refuses it."""
    if not _SPECIAL.search(pattern):
        # Texts with | between them, as in the built-in alert rules: an idle server evaluates these.
        alternatives = frozenset(pattern.split("|"))
        return np.fromiter((text in alternatives for text in texts), np.bool_, len(texts))
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        found = pc.match_substring_regex(_array(texts), pattern=_anchor(pattern))
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"error parsing regexp {pattern!r}: {error}", "query") from error
    if not texts:
        return np.empty(0, np.bool_)
    values: Any = found.cast(pa.uint8()).buffers()[1]  # a buffer of bytes; Arrow's type annotations lack this
    return np.frombuffer(values, np.bool_, len(texts))


def replace_matches(pattern: str, replacement: str, texts: Sequence[str]) -> list[str | None]:
    """Return the replacement of each text that the expression matches as a whole; None for any other text.

    ``replacement`` names groups as ``$1``, ``${1}`` or ``${name}``; a missing group is empty.
    """
    matched = match_texts(pattern, texts)
    names = ["", *(found[2] or "" for found in _GROUP.finditer(pattern) if found[1] is not None)]

    def place(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        number = int(name) if name.isdigit() else (names.index(name) if name in names else len(names))
        if number >= len(names):
            return ""
        if number > _MOST_PLACES:
            raise InvalidRequestError(f"The replacement names group {number}; the limit is {_MOST_PLACES}.", "query")
        return f"\\{number}"

    parts = []
    end = 0
    for found in _PLACE.finditer(replacement):
        parts += [replacement[end : found.start()].replace("\\", "\\\\"), place(found)]
        end = found.end()
    rewrite = "".join([*parts, replacement[end:].replace("\\", "\\\\")])
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    array = _array(texts)
    made = pc.replace_substring_regex(array, pattern=_anchor(pattern), replacement=rewrite, max_replacements=1)
    return [text if one else None for text, one in zip(made.to_pylist(), matched.tolist(), strict=True)]
