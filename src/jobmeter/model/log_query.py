"""The language in which log lines are searched for: words, quoted phrases, AND, OR, NOT, parentheses, field:value.

A **word** is a run of letters, digits and characters beyond ASCII; everything else stands between words. A term matches
a line that has its words next to each other and in order, whatever stands between them, in any letter case: ``Xid`` and
``"page fault"``, which finds ``page-fault`` too. ``field:value`` compares a property of the line. Terms side by side
must all match, as with AND; NOT binds more closely than AND, AND more closely than OR. Operators are in capitals.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.log import LogLine, level_of
from jobmeter.model.syslog import FACILITIES, SEVERITIES, WORDS, severity_of, severity_of_level

MAX_QUERY = 4_096
"""Longest query, in characters."""
MAX_TERMS = 64
"""Most terms of a query."""
MAX_DEPTH = 32
"""Deepest nesting of parentheses and NOT."""
# Digits, small letters, and all beyond ASCII: said as what is no part of a word it compiles sixty times as fast.
_WORD = re.compile(r"[^\x00-/:-`{-\x7f]+")
_TOKEN = re.compile(
    r'\s*(?:(?P<bracket>[()])|(?P<field>[A-Za-z_]+):(?=[^\s()])|"(?P<phrase>[^"]*)"|(?P<word>[^\s()"]+))'
)
_VALUE = re.compile(r'"(?P<phrase>[^"]*)"|(?P<word>[^\s()"]+)')
_OPERATORS = {"AND", "OR", "NOT"}


class Words(msgspec.Struct, frozen=True):
    """A line has these words next to each other, in this order."""

    words: tuple[str, ...]


class Property(msgspec.Struct, frozen=True):
    """A property of a line has this value; ``severity`` is a digit, what is left out matches the empty value."""

    field: str
    value: str


class Without(msgspec.Struct, frozen=True):
    """The part does not match."""

    part: "LogQuery"


class Every(msgspec.Struct, frozen=True):
    """All parts match."""

    parts: tuple["LogQuery", ...]


class Either(msgspec.Struct, frozen=True):
    """One part matches at least."""

    parts: tuple["LogQuery", ...]


LogQuery = Words | Property | Without | Every | Either

PROPERTIES: Mapping[str, Callable[[LogLine], str]] = {
    "job": lambda line: line.job,
    "replica": lambda line: line.replica,
    "node": lambda line: line.node,
    "stream": lambda line: line.stream,
    "facility": lambda line: line.facility,
    "severity": lambda line: "" if effective_severity(line) is None else str(effective_severity(line)),
    "level": lambda line: line.level or "",
    "tag": lambda line: line.tag,
}
"""The properties that may be compared, each with how it is read from a line."""


def effective_severity(line: LogLine) -> int | None:
    """The line's severity, else that of its level; None where it says neither."""
    if line.severity is not None:
        return line.severity
    return None if line.level is None else severity_of_level(line.level)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.lower())


def matches(query: LogQuery, line: LogLine) -> bool:
    """True for a line that a query finds."""
    match query:
        case Words(words):
            own, length = words_of(line.text), len(words)
            return any(tuple(own[at : at + length]) == words for at in range(len(own) - length + 1))
        case Property(field, value):
            return PROPERTIES[field](line) == value
        case Without(part):
            return not matches(part, line)
        case Every(parts):
            return all(matches(part, line) for part in parts)
        case Either(parts):
            return any(matches(part, line) for part in parts)


def parse_log_query(text: str, field: str = "query") -> LogQuery | None:
    """The query that a text means, None for an empty one. Raises InvalidRequestError naming ``field``."""
    if len(text) > MAX_QUERY:
        raise LimitExceededError(f"{field} may have {MAX_QUERY} characters, this one has {len(text)}", field)
    if not text.strip():
        return None
    return _Parser(text, field).whole()


class _Token(msgspec.Struct, frozen=True):
    """One token: ``kind`` is ``(``, ``)``, an operator, ``field`` or ``term``."""

    kind: str
    text: str


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, field: str) -> None:
        self._field = field
        self._tokens = self._split(text)
        self._at = 0
        self._terms = 0

    def whole(self) -> LogQuery:
        """The query of all tokens."""
        found = self._either(0)
        if self._at < len(self._tokens):
            raise self._wrong("a closing parenthesis has no opening one")
        return found

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            is_value = bool(tokens) and tokens[-1].kind == "field"
            found = (_VALUE if is_value else _TOKEN).match(text, at, end)
            if found is None:
                raise self._wrong("a quotation mark is not closed")
            at = found.end()
            tokens.append(_value_token(found) if is_value else _token(found))
        return tokens

    def _next(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _either(self, depth: int) -> LogQuery:
        parts = [self._every(depth)]
        while self._next() == "OR":
            self._at += 1
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self, depth: int) -> LogQuery:
        parts = [self._one(depth)]
        while self._next() not in {"", "OR", ")"}:
            if self._next() == "AND":
                self._at += 1
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self, depth: int) -> LogQuery:
        if depth > MAX_DEPTH:
            raise LimitExceededError(f"{self._field} may be nested {MAX_DEPTH} deep", self._field)
        kind = self._next()
        if kind in {"", "AND", "OR", ")"}:
            raise self._wrong("a term is missing " + (f"before {kind}" if kind else "at the end"))
        token = self._tokens[self._at]
        self._at += 1
        if kind == "NOT":
            return Without(self._one(depth + 1))
        if kind == "(":
            found = self._either(depth + 1)
            if self._next() != ")":
                raise self._wrong("an opening parenthesis has no closing one")
            self._at += 1
            return found
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise LimitExceededError(f"{self._field} may have {MAX_TERMS} terms", self._field)
        return self._property(token.text) if kind == "field" else self._words(token.text)

    def _words(self, text: str) -> LogQuery:
        words = tuple(words_of(text))
        if not words:
            raise self._wrong(f"{text[:40]!r} has no letter or digit to look for")
        return Words(words)

    def _property(self, name: str) -> LogQuery:
        field = name.lower()
        if field not in PROPERTIES:
            names = ", ".join(PROPERTIES)
            raise self._wrong(f"there is no field {name[:40]!r} ({names}); put text with a colon in quotation marks")
        token = self._tokens[self._at]  # the pattern of a field sees that something follows
        self._at += 1
        return Property(field, self._value(field, token.text))

    def _value(self, field: str, text: str) -> str:
        if field == "severity":
            severity = severity_of(text)
            if severity is None:
                raise self._wrong(f"severity {text[:40]!r} is not one of {', '.join(WORDS)}")
            return str(severity)
        if field == "level":
            level = level_of(text)
            if level is None:
                raise self._wrong(f"level {text[:40]!r} is not one of {', '.join(WORDS)}")
            return level
        if field == "facility":
            if text.lower() not in FACILITIES:
                raise self._wrong(f"facility {text[:40]!r} is not one of {', '.join(FACILITIES)}")
            return text.lower()
        return text

    def _wrong(self, why: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self._field} cannot be read: {why}", self._field)


def _value_token(found: re.Match[str]) -> _Token:
    return _Token("term", found["word"] if found["phrase"] is None else found["phrase"])


def _token(found: re.Match[str]) -> _Token:
    if found["bracket"]:
        return _Token(found["bracket"], found["bracket"])
    if found["field"]:
        return _Token("field", found["field"])
    if found["word"] in _OPERATORS:
        return _Token(found["word"], found["word"])
    return _value_token(found)


def parse_severity(text: str, field: str = "severity") -> int:
    """The number of a severity. Raises InvalidRequestError naming ``field``."""
    severity = severity_of(text)
    if severity is None:
        raise InvalidRequestError(f"{field} {text[:40]!r} is not one of {', '.join(SEVERITIES)}", field)
    return severity
