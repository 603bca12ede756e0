"""Text from the system and from schedulers (arguments, names, variables, numbers)."""

import re

from jobmeter.model.record import MAX_SHORT_TEXT

_ESCAPED = re.compile("[\udc80-\udcff]")


def valid_text(text: str) -> str:
    r"""The text with each byte that is not UTF-8 as ``\xff``, so that it can be written as UTF-8."""
    shown = _ESCAPED.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return shown.encode(errors="backslashreplace").decode()


def short_text(text: str) -> str:
    """The same, no longer than a short text of a record may be."""
    return valid_text(text)[:MAX_SHORT_TEXT]


def whole_number(text: str, digits: int = 9) -> int | None:
    """The number in a text of at most so many digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
