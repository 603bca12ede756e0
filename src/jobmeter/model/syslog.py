"""The names of syslog facilities and severities, by their numbers.

Source: https://www.rfc-editor.org/rfc/rfc5424#section-6.2.1
"""

from jobmeter.model.event import Level

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news"),
    *("uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert", "clock"),
    *(f"local{number}" for number in range(8)),
)
"""Names of facilities; the place of each is its number."""
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
"""Names of severities, the worst first; the place of each is its number."""
_OTHER = {"emergency": 0, "panic": 0, "critical": 2, "fatal": 2, "error": 3, "warn": 4, "informational": 6}
SEVERITY_WORDS = (*SEVERITIES, *_OTHER)
"""Every word that names a severity, in lower case."""
_LEVELS = {3: Level.ERROR, 4: Level.WARNING, 6: Level.INFO, 7: Level.DEBUG}
_OF_LEVELS = {level: severity for severity, level in _LEVELS.items()}


def severity_of(word: str) -> int | None:
    """The severity that a word or a digit means (``warn``, ``3``), in any case; None for any other."""
    text = word.lower()
    if text in SEVERITIES:
        return SEVERITIES.index(text)
    if len(text) == 1 and text in "01234567":
        return int(text)
    return _OTHER.get(text)


def level_of_severity(severity: int) -> Level:
    """The level of a severity: ``err`` and worse are errors, ``notice`` is for information."""
    return _LEVELS[max(3, 6 if severity == 5 else severity)]


def severity_of_level(level: Level) -> int:
    """The severity that a line of this level has where none is named."""
    return _OF_LEVELS[level]


def facility_name(number: int) -> str:
    """The facility's name; ``user`` for a number that is none, as a kernel does."""
    return FACILITIES[number] if 0 <= number < len(FACILITIES) else "user"
