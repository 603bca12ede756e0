"""Search for log lines as a tree, and its evaluation. ``jobmeter.model.log_query`` parses it from a text.

A **word** is a run of letters, digits and characters beyond ASCII, compared in any letter case; everything else
separates words. In a pattern ``*`` matches any characters of a word or value, ``?`` one.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.glob import Glob
from jobmeter.model.log import LogLine
from jobmeter.model.syslog import convert_level, convert_severity

# Digits, small letters, and everything beyond ASCII. Written as a negated class it compiles sixty times as fast.
_WORD = re.compile(r"[^\x00-/:-`{-\x7f]+")


class Phrase(msgspec.Struct, frozen=True, tag=True):
    """Condition: a line contains these words, adjacent and in order. A word with ``*`` or ``?`` is a pattern."""

    words: tuple[str, ...]


class Property(msgspec.Struct, frozen=True, tag=True):
    """Condition: a property of a line has one of these values; the empty value matches a line without the property.

    Values of ``severity`` are digits.
    """

    field: str
    values: tuple[str, ...]


class Like(msgspec.Struct, frozen=True, tag=True):
    """Condition: a property of a line matches a whole pattern, case-sensitively."""

    field: str
    pattern: str


class Between(msgspec.Struct, frozen=True, tag=True):
    """Condition: a number of a line lies between two others, both inclusive."""

    field: str
    low: int
    high: int


class Not(msgspec.Struct, frozen=True, tag=True):
    """Condition: the part does not match."""

    part: "LogQuery"


class And(msgspec.Struct, frozen=True, tag=True):
    """Condition: all parts match; without parts, every line does."""

    parts: tuple["LogQuery", ...]


class Or(msgspec.Struct, frozen=True, tag=True):
    """Condition: at least one part matches."""

    parts: tuple["LogQuery", ...]


LogQuery = Phrase | Property | Like | Between | Not | And | Or


def find_severity(line: LogLine) -> int | None:
    """Return the line's severity, else that of its level; None without both."""
    if line.severity is not None:
        return line.severity
    return None if line.level is None else convert_level(line.level)


def find_level(line: LogLine) -> Level | None:
    """Return the line's level, else that of its severity; None without both."""
    if line.level is not None:
        return line.level
    return None if line.severity is None else convert_severity(line.severity)


PROPERTIES: Mapping[str, Callable[[LogLine], str]] = {
    "job": lambda line: line.job,
    "replica": lambda line: line.replica,
    "node": lambda line: line.node,
    "stream": lambda line: line.stream,
    "facility": lambda line: line.facility,
    "severity": lambda line: "" if find_severity(line) is None else str(find_severity(line)),
    "level": lambda line: find_level(line) or "",
    "tag": lambda line: line.tag,
}
"""Properties of lines, each with its reader."""
NUMBERS: Mapping[str, Callable[[LogLine], int]] = {
    "attempt": lambda line: line.attempt,
    "time_ns": lambda line: line.time_ns,
}
"""Numbers of lines, each with its reader."""


def split_words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.lower())


def is_pattern(word: str) -> bool:
    """Return True for a word or value that has ``*`` or ``?`` in it."""
    return "*" in word or "?" in word


def matches(query: LogQuery, line: LogLine) -> bool:
    """True if the query matches the line."""
    match query:
        case Phrase(words):
            return _has(words, split_words(line.text))
        case Property(field, values):
            return PROPERTIES[field](line) in values
        case Like(field, pattern):
            return _glob(pattern).matches(PROPERTIES[field](line))
        case Between(field, low, high):
            return low <= NUMBERS[field](line) <= high
        case Not(part):
            return not matches(part, line)
        case And(parts):
            return all(matches(part, line) for part in parts)
        case Or(parts):
            return any(matches(part, line) for part in parts)


def _has(words: tuple[str, ...], own: list[str]) -> bool:
    length = len(words)
    if not any(map(is_pattern, words)):
        return any(tuple(own[at : at + length]) == words for at in range(len(own) - length + 1))
    fits = [_glob(word).matches if is_pattern(word) else word.__eq__ for word in words]
    return any(
        all(fit(word) for fit, word in zip(fits, own[at : at + length], strict=True))
        for at in range(len(own) - length + 1)
    )


@lru_cache(maxsize=256)
def _glob(pattern: str) -> Glob:
    return Glob(pattern)
