"""Converts a query for log lines to a condition of the engine, which uses its word index as far as possible."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.log_batch import LEVEL_CODES
from jobmeter.model.log_tree import And, Between, Like, LogQuery, Not, Or, Phrase, Property, is_pattern

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
"""Characters between words."""


class LogCondition(msgspec.Struct):
    """A condition with its bound parameters."""

    sql: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

    def bind(self, kind: str, value: object) -> str:
        """Bind a value. Return its placeholder."""
        name = f"q{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{kind}}}"


def make_condition(query: LogQuery, job: str) -> LogCondition:
    """Return the condition of a query for lines of ``job``, or of a system log if that is empty."""
    made = LogCondition()
    made.sql = f"({_sql(query, job, made)})"
    return made


def _sql(query: LogQuery, job: str, made: LogCondition) -> str:
    match query:
        case Phrase(words):
            return _words(words, made)
        case Property(name, values):
            return _property(name, values, job, made)
        case Like(name, pattern):
            return f"{_column(name, job, made)} LIKE {made.bind('String', _to_like_pattern(pattern))}"
        case Between(name, low, high):
            return f"{name} BETWEEN {made.bind('Int64', low)} AND {made.bind('Int64', high)}"
        case Not(part):
            return f"NOT ({_sql(part, job, made)})"
        case And(parts):
            return " AND ".join(f"({_sql(part, job, made)})" for part in parts) or "1"
        case Or(parts):
            return " OR ".join(f"({_sql(part, job, made)})" for part in parts)


def _words(words: Sequence[str], made: LogCondition) -> str:
    """Return the condition that words are adjacent.

    The index finds whole words, and the longest part without a wildcard of patterns; a regular expression checks the
    rest.
    """
    whole = sorted({word for word in words if not is_pattern(word)})
    parts = sorted({max(re.split(r"[*?]", word), key=len) for word in words if is_pattern(word)})
    found = [f"hasAllTokens({_TEXT}, {made.bind('Array(String)', whole)})"] if whole else []
    found += [f"{_TEXT} LIKE {made.bind('String', f'%{part}%')}" for part in parts if len(part) >= _PART]
    if len(words) > 1 or not whole:
        apart = f"{_OTHER}+".join(map(_make_regular_expression, words))
        pattern = f"(?s)(?:^|{_OTHER}){apart}(?:$|{_OTHER})"
        found.append(f"match({_TEXT}, {made.bind('String', pattern)})")
    return " AND ".join(found)


def _make_regular_expression(word: str) -> str:
    """Return the regular expression of a word or a pattern of one."""
    if word == "*":
        return f"{_LETTER}+"
    return re.escape(word).replace(r"\*", f"{_LETTER}*").replace(r"\?", _LETTER)


def _to_like_pattern(pattern: str) -> str:
    """Convert a pattern to the syntax of LIKE."""
    return re.sub(r"([%_\\])", r"\\\1", pattern).replace("*", "%").replace("?", "_")


def _property(name: str, values: Sequence[str], job: str, made: LogCondition) -> str:
    if name == "severity":
        return f"{SEVERITY} IN {made.bind('Array(UInt8)', [int(value) if value else 255 for value in values])}"
    if name == "level":
        codes = [LEVEL_CODES[Level(value)] if value else 0 for value in values]
        return f"{LEVEL} IN {made.bind('Array(UInt8)', codes)}"
    return f"{_column(name, job, made)} IN {made.bind('Array(String)', list(values))}"


def _column(name: str, job: str, made: LogCondition) -> str:
    """Return the column of a property, or its value if all lines of one job share it."""
    match name:
        case "job":
            return made.bind("String", job) if job else "about_job"
        case "replica":
            return "replica" if job else "about_replica"
        case _:
            return name
