"""Names of syslog facilities and severities, by number.

Source: https://www.rfc-editor.org/rfc/rfc5424#section-6.2.1.
"""

import re
from collections.abc import Mapping

from jobmeter.model.event import Level

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news"),
    *("uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert", "clock"),
    *(f"local{number}" for number in range(8)),
)
"""Names of facilities; their index is their number."""
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
"""Names of severities, worst first; their index is their number."""
_MORE = {"emergency": 0, "panic": 0, "critical": 2, "fatal": 2, "error": 3, "warn": 4, "informational": 6, "trace": 7}
WORDS: Mapping[str, int] = {word: number for number, word in enumerate(SEVERITIES)} | _MORE
"""Words for severities, in lower case, with their numbers."""
_PRIORITY = re.compile(r"<(\d{1,3})>")
_MOST_PRIORITY = 191
_LEVELS = {3: Level.ERROR, 4: Level.WARNING, 6: Level.INFO, 7: Level.DEBUG}
_OF_LEVELS = {level: severity for severity, level in _LEVELS.items()}


def parse_severity_word(word: str) -> int | None:
    """Return the severity of a word or digit (``warn``, ``3``), in any case; None for any other."""
    text = word.strip().lower()
    return int(text) if len(text) == 1 and text in "01234567" else WORDS.get(text)


def parse_facility(word: str) -> str | None:
    """Return the facility of a word or a number from 0 to 23, in any case; None for any other."""
    text = word.strip().lower()
    if text.isascii() and text.isdigit() and len(text) <= 2 and int(text) < len(FACILITIES):
        return FACILITIES[int(text)]
    return text if text in FACILITIES else None


def parse_priority(text: str) -> tuple[str, int] | None:
    """Return facility and severity of a line that begins with ``<PRI>``; None for other lines.

    https://www.rfc-editor.org/rfc/rfc5424#section-6.2.1.
    """
    found = _PRIORITY.match(text) if text[:1] == "<" else None
    if found is None or int(found[1]) > _MOST_PRIORITY:
        return None
    number = int(found[1])
    return FACILITIES[number >> 3], number & 7


def convert_severity(severity: int) -> Level:
    """Return the level of a severity: ``err`` and worse are errors, ``notice`` is for information."""
    return _LEVELS[max(3, 6 if severity == 5 else severity)]


def convert_level(level: Level) -> int:
    """Return the severity of a line that has only a level."""
    return _OF_LEVELS[level]


def name_facility(number: int) -> str:
    """Return the facility's name; ``user`` for an unknown number, as a kernel does."""
    return FACILITIES[number] if 0 <= number < len(FACILITIES) else "user"
