"""Text from the system (arguments, names, variables), which may contain bytes that are not UTF-8."""

import re

_ESCAPED = re.compile("[\udc80-\udcff]")


def valid_text(text: str) -> str:
    r"""The text with each byte that is not UTF-8 as ``\xff``, so that it can be written as UTF-8."""
    shown = _ESCAPED.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return shown.encode(errors="backslashreplace").decode()
