"""A query for log lines as a condition of the engine, which its index of words answers as far as it can."""

import re
from typing import Any

import msgspec

from jobmeter.model.log_query import Either, Every, LogQuery, Property, Without, Words

SEVERITY = "if(severity < 8, severity, [255, 7, 6, 4, 3][level + 1])"
"""A line's severity, else that of its level (0 to 4 as stored), else 255."""
_LEVELS = "['', 'debug', 'info', 'warning', 'error'][level + 1]"
_TEXT = "lowerUTF8(text)"
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
        case Property(name, value):
            return _property(name, value, job, made)
        case Without(part):
            return f"NOT ({_sql(part, job, made)})"
        case Every(parts):
            return " AND ".join(f"({_sql(part, job, made)})" for part in parts)
        case Either(parts):
            return " OR ".join(f"({_sql(part, job, made)})" for part in parts)


def _words(words: tuple[str, ...], made: Condition) -> str:
    has = f"hasAllTokens({_TEXT}, {made.bind('Array(String)', sorted(set(words)))})"
    if len(words) == 1:
        return has
    apart = f"{_OTHER}+".join(re.escape(word) for word in words)
    pattern = f"(?s)(?:^|{_OTHER}){apart}(?:$|{_OTHER})"
    return f"{has} AND match({_TEXT}, {made.bind('String', pattern)})"


def _property(name: str, value: str, job: str, made: Condition) -> str:
    match name:
        case "severity":
            return f"{SEVERITY} = {made.bind('UInt8', int(value) if value else 255)}"
        case "level":
            return f"{_LEVELS} = {made.bind('String', value)}"
        case "job":
            column = "about_job" if not job else made.bind("String", job)
        case "replica":
            column = "replica" if job else "about_replica"
        case _:
            column = name
    return f"{column} = {made.bind('String', value)}"
