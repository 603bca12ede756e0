"""Text from the system and from schedulers (arguments, names, variables, numbers)."""

import re

from jobmeter.model.record import MAX_SHORT_TEXT
from jobmeter.model.series import MAX_LABEL_VALUE

_ESCAPED = re.compile("[\udc80-\udcff]")


def escape_invalid(text: str) -> str:
    r"""Replace each byte that is not UTF-8 by ``\xff``, so that the text can be written as UTF-8."""
    shown = _ESCAPED.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return shown.encode(errors="backslashreplace").decode()


def shorten_text(text: str) -> str:
    """Return a valid text, truncated to the limit of a record's short text."""
    return escape_invalid(text)[:MAX_SHORT_TEXT]


def make_label_value(text: str) -> str:
    """Return a text as the value of a label: printable and within the limit."""
    return "".join(one if one.isprintable() else " " for one in escape_invalid(text)).strip()[:MAX_LABEL_VALUE]


def parse_whole_number(text: str, digits: int = 9) -> int | None:
    """Parse a whole number of at most ``digits`` digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
