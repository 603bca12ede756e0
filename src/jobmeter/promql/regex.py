"""Regular expressions with RE2's syntax, through Arrow: time linear in the text, no look-around, no references."""

import re
from collections.abc import Sequence

import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Bools

_PLACE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")
_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\((\?P?<(\w+)>|(?!\?))", re.DOTALL)
_MOST_PLACES = 9
_SPECIAL = re.compile(r"[\\.+*?()\[\]{}^$]")
"""Any character that has a meaning in an expression, except ``|``."""


def _anchored(pattern: str) -> str:
    return f"^(?s:{pattern})$"


def full_matches(pattern: str, texts: Sequence[str]) -> Bools:
    """Return which texts the expression matches as a whole. Raises InvalidRequestError where RE2 refuses it."""
    if not _SPECIAL.search(pattern):
        # Texts with | between them, as in the built-in alert rules: an idle server evaluates these.
        alternatives = frozenset(pattern.split("|"))
        return np.fromiter((text in alternatives for text in texts), np.bool_, len(texts))
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for servers that nobody asks with expressions
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        found = pc.match_substring_regex(pa.array(texts, pa.string()), pattern=_anchored(pattern))
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"error parsing regexp {pattern!r}: {error}", "query") from error
    matched: Bools = found.to_numpy(zero_copy_only=False).astype(bool)
    return matched


def replace_matches(pattern: str, replacement: str, texts: Sequence[str]) -> list[str | None]:
    """Return the replacement of each text that the expression matches as a whole, None for any other.

    ``replacement`` names groups as ``$1``, ``${1}`` or ``${name}``; a group that does not exist is empty.
    """
    matched = full_matches(pattern, texts)
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
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415

    array = pa.array(texts, pa.string())
    made = pc.replace_substring_regex(array, pattern=_anchored(pattern), replacement=rewrite, max_replacements=1)
    return [text if one else None for text, one in zip(made.to_pylist(), matched.tolist(), strict=True)]
