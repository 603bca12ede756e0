"""A query for log lines as a condition of the engine, which its index of words answers as far as it can."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.log_batch import LEVEL_CODES
from jobmeter.model.log_tree import Between, Either, Every, Like, LogQuery, Property, Without, Words, is_pattern

SEVERITY = "if(severity < 8, severity, [255, 7, 6, 4, 3][level + 1])"
"""A line's severity, else that of its level (0 to 4 as stored), else 255."""
LEVEL = "if(level > 0 OR severity > 7, level, [4, 4, 4, 4, 3, 2, 2, 1][severity + 1])"
"""A line's level as stored, else that of its severity, else 0."""
SETTINGS = {"text_index_like_min_pattern_length": 3}
"""Settings of a search: the index of words finds parts of words from this length on."""
_PART = 3
_TEXT = "lowerUTF8(text)"
_LETTER = r"[0-9a-z\x{80}-\x{10ffff}]"
_OTHER = r"[^0-9a-z\x{80}-\x{10ffff}]"
"""What stands between words."""


class Condition(msgspec.Struct):
    """A condition with what is bound to it."""

    sql: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

    def bind(self, kind: str, value: object) -> str:
        """A placeholder for the value."""
        name = f"q{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{kind}}}"


def condition(query: LogQuery, job: str) -> Condition:
    """The condition that a query means, among the lines of ``job``, or of a system log where that is empty."""
    made = Condition()
    made.sql = f"({_sql(query, job, made)})"
    return made


def _sql(query: LogQuery, job: str, made: Condition) -> str:
    match query:
        case Words(words):
            return _words(words, made)
        case Property(name, values):
            return _property(name, values, job, made)
        case Like(name, pattern):
            return f"{_column(name, job, made)} LIKE {made.bind('String', _like(pattern))}"
        case Between(name, low, high):
            return f"{name} BETWEEN {made.bind('Int64', low)} AND {made.bind('Int64', high)}"
        case Without(part):
            return f"NOT ({_sql(part, job, made)})"
        case Every(parts):
            return " AND ".join(f"({_sql(part, job, made)})" for part in parts) or "1"
        case Either(parts):
            return " OR ".join(f"({_sql(part, job, made)})" for part in parts)


def _words(words: Sequence[str], made: Condition) -> str:
    """Return the condition of words next to each other.

    The index finds whole words, and of patterns the longest part without a wildcard; the rest is a regular expression.
    """
    whole = sorted({word for word in words if not is_pattern(word)})
    parts = sorted({max(re.split(r"[*?]", word), key=len) for word in words if is_pattern(word)})
    found = [f"hasAllTokens({_TEXT}, {made.bind('Array(String)', whole)})"] if whole else []
    found += [f"{_TEXT} LIKE {made.bind('String', f'%{part}%')}" for part in parts if len(part) >= _PART]
    if len(words) > 1 or not whole:
        apart = f"{_OTHER}+".join(map(_regular, words))
        pattern = f"(?s)(?:^|{_OTHER}){apart}(?:$|{_OTHER})"
        found.append(f"match({_TEXT}, {made.bind('String', pattern)})")
    return " AND ".join(found)


def _regular(word: str) -> str:
    """Return the regular expression of a word or a pattern of one."""
    if word == "*":
        return f"{_LETTER}+"
    return re.escape(word).replace(r"\*", f"{_LETTER}*").replace(r"\?", _LETTER)


def _like(pattern: str) -> str:
    """Return a pattern as LIKE writes it."""
    return re.sub(r"([%_\\])", r"\\\1", pattern).replace("*", "%").replace("?", "_")


def _property(name: str, values: Sequence[str], job: str, made: Condition) -> str:
    if name == "severity":
        return f"{SEVERITY} IN {made.bind('Array(UInt8)', [int(value) if value else 255 for value in values])}"
    if name == "level":
        codes = [LEVEL_CODES[Level(value)] if value else 0 for value in values]
        return f"{LEVEL} IN {made.bind('Array(UInt8)', codes)}"
    return f"{_column(name, job, made)} IN {made.bind('Array(String)', list(values))}"


def _column(name: str, job: str, made: Condition) -> str:
    """Return the column of a property, or its value where the lines of one job have it in common."""
    match name:
        case "job":
            return made.bind("String", job) if job else "about_job"
        case "replica":
            return "replica" if job else "about_replica"
        case _:
            return name
