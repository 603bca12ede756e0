"""Fields of log searches: their names, and the comparison of each with a value."""

import operator
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.log_tree import And, Between, Like, LogQuery, Not, Phrase, Property, is_pattern, split_words
from jobmeter.model.syslog import FACILITIES, WORDS, convert_severity
from jobmeter.model.time import parse_time_ns

_NAMES = ("job", "replica", "node", "stream", "tag")
_ALIASES = {
    "nodeid": "node",
    "hostname": "node",
    "source": "stream",
    "syslogtag": "tag",
    "tagpath": "path",
    "msg": "text",
    "message": "text",
}
"""Alternative names of fields, from answers of Jobmeter's own API and of ListSyslogs."""
FIELDS: Mapping[str, str] = {
    **{name: name for name in (*_NAMES, "path", "facility", "severity", "level", "text", "attempt", "time", "time_ns")},
    **_ALIASES,
}
"""Field for each name in lower case."""
CHOICES = (
    "text, time, level, severity, facility, tag, stream, path, node, job, replica, attempt, "
    "or as ListSyslogs: Msg, Time, Severity, Facility, Syslogtag, Source, TagPath, NodeId, Hostname"
)
"""Fields as an error lists them."""

_ORDERS: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LEVELS = list(Level)
_DIGITS = {str(number): number for number in range(8)}
_SEVERITY_VALUES = {word: str(number) for word, number in {**WORDS, **_DIGITS}.items()}
_LEVEL_VALUES = {word: convert_severity(number).value for word, number in {**WORDS, **_DIGITS}.items()}
_FACILITY_VALUES = {name: name for name in FACILITIES} | {str(number): name for number, name in enumerate(FACILITIES)}
_VALUES = {"severity": _SEVERITY_VALUES, "level": _LEVEL_VALUES, "facility": _FACILITY_VALUES}
_FILE = "file:"
_LEAST, _MOST = -(2**63), 2**63 - 1
_PATTERN_WORD = re.compile(r"[^\x00-)+-/:->@-`{-\x7f]+")
_CLOCK = re.compile(r"T?(\d\d)(:?\d\d)?(:?\d\d)?(?:[.,](\d{1,9}))?")
_SECOND = 10**9


def make_words_condition(text: str, *, literal: bool = False) -> LogQuery:
    """Return the condition of adjacent words. ``literal``: ``*`` and ``?`` stand between words.

    A single ``*`` finds every line. Raises InvalidRequestError for a text without a letter or a digit.
    """
    if not literal and text and not text.strip("*"):
        return And(())
    found = (
        split_words(text) if literal else [re.sub(r"\*+", "*", word) for word in _PATTERN_WORD.findall(text.lower())]
    )
    if not found:
        raise _make_query_error(f"{text[:40]!r} has no letter or digit to search for")
    return Phrase(tuple(found))


def make_field_condition(name: str, compared: str, text: str, *, literal: bool = False) -> LogQuery:
    """Return the condition that compares a field with a value.

    ``name`` is a value of ``FIELDS``, ``compared`` one of ``:``, ``!=``, ``<``, ``<=``, ``>``, ``>=``. ``literal``:
    ``*`` and ``?`` are plain characters. Raises InvalidRequestError for a value that the field cannot have.
    """
    if compared == "!=":
        return Not(make_field_condition(name, ":", text, literal=literal))
    if not literal and text[:1] in {"[", "{"}:
        raise _make_query_error("write a range with >= and <=, such as severity>=3 and severity<=4")
    if name in {"attempt", "time", "time_ns"}:
        return _number(name, compared, text)
    if compared in _ORDERS:
        return _make_comparison(name, compared, text)
    return _make_equality(name, text, literal=literal)


def _make_equality(name: str, text: str, *, literal: bool) -> LogQuery:
    """Return the condition that a field has a value or matches a pattern; a lone ``*``: that it has any value."""
    pattern = not literal and is_pattern(text)
    if name == "text":
        return make_words_condition(text, literal=literal)
    if name == "path":
        return _path(text, pattern=pattern)
    if name in _VALUES:
        return _make_choice(name, _VALUES[name], text, pattern=pattern)
    if pattern and not text.strip("*"):
        return Not(Property(name, ("",)))
    return Like(name, text) if pattern else Property(name, (text,))


def _path(text: str, *, pattern: bool) -> LogQuery:
    """Return the condition of a file path that lines were read from: a part of their stream."""
    if not text:
        return Not(Like("stream", f"{_FILE}*"))
    return Like("stream", _FILE + text) if pattern else Property("stream", (_FILE + text,))


def _make_choice(name: str, values: Mapping[str, str], text: str, *, pattern: bool) -> LogQuery:
    """Return the condition of a field that has a word of a list, or is empty."""
    wanted = text.strip().lower()
    if pattern:
        found = dict.fromkeys(value for word, value in values.items() if fnmatchcase(word, wanted.replace("[", "[[]")))
    else:
        found = dict.fromkeys([values[wanted]] if wanted in values else [""] if not wanted else [])
    if not found:
        raise _make_query_error(f"{name} {text[:40]!r} is not one of {_name_choices(values)}")
    return Property(name, tuple(found))


def _make_comparison(name: str, compared: str, text: str) -> LogQuery:
    """Return the condition of a severity below or above a number, or of a level."""
    holds = _ORDERS[compared]
    wanted = text.strip().lower()
    if name == "level":
        if wanted not in _LEVEL_VALUES:
            raise _make_query_error(f"level {text[:40]!r} is not one of {_name_choices(_LEVEL_VALUES)}")
        rank = _LEVELS.index(Level(_LEVEL_VALUES[wanted]))
        return Property(name, tuple(level.value for at, level in enumerate(_LEVELS) if holds(at, rank)))
    if name != "severity":
        raise _make_query_error(f"{name} has no order: compare it with : or !=, and with the patterns * and ?")
    if wanted not in _DIGITS:
        raise _make_query_error(
            f"severity {text[:40]!r} has no order: compare numbers, 0 (emerg) to 7 (debug), such as severity<=3, "
            "or levels, such as level>=warning"
        )
    return Property(name, tuple(str(number) for number in range(8) if holds(number, _DIGITS[wanted])))


def _number(name: str, compared: str, text: str) -> LogQuery:
    """Return the condition of a number, or of a moment with its written precision."""
    if compared == ":" and text and not text.strip("*"):
        return And(())
    low, high = _attempt(text) if name == "attempt" else _moment(text, nanoseconds=name == "time_ns")
    name = "attempt" if name == "attempt" else "time_ns"
    match compared:
        case "<":
            return Between(name, _LEAST, low - 1)
        case "<=":
            return Between(name, _LEAST, high)
        case ">":
            return Between(name, high + 1, _MOST)
        case ">=":
            return Between(name, low, _MOST)
        case _:
            return Between(name, low, high)


def _attempt(text: str) -> tuple[int, int]:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise _make_query_error(f"attempt {text[:40]!r} is not a number from 0")
    return int(text), int(text)


def _moment(text: str, *, nanoseconds: bool) -> tuple[int, int]:
    """Return the first and the last nanosecond of a moment: of a day, a minute, a second, a millisecond, as written.

    A number is in seconds, milliseconds or nanoseconds since the epoch, by its length, or always in ``nanoseconds``.
    """
    if text.isascii() and text.isdigit() and len(text) <= 19:
        unit = 1 if nanoseconds or len(text) > 14 else 10**6 if len(text) > 11 else _SECOND
        low = int(text) * unit
    else:
        try:
            low = parse_time_ns(text)
        except (InvalidRequestError, OverflowError):
            raise _make_query_error(
                f"time {text[:40]!r} is neither ISO 8601 (2026-11-20T15:00:00Z) nor seconds, milliseconds or "
                "nanoseconds since 1970"
            ) from None
        unit = _precision(text)
    if low + unit > _MOST:
        raise _make_query_error(f"time {text[:40]!r} is not between 1970 and 2100")
    return low, low + unit - 1


def _precision(text: str) -> int:
    """Return the length in nanoseconds of a moment in ISO 8601."""
    clock = _CLOCK.match(text, 10) or _CLOCK.match(text, 11)
    if clock is None:
        return 86_400 * _SECOND
    _, minute, second, fraction = clock.groups()
    if fraction:
        return int(10 ** (9 - len(fraction)))
    return _SECOND if second else 60 * _SECOND if minute else 3_600 * _SECOND


def _name_choices(values: Mapping[str, str]) -> str:
    words = [word for word in values if not word.isdigit()]
    return f"{', '.join(words)}, or 0 to {len(values) - len(words) - 1}"


def _make_query_error(why: str) -> InvalidRequestError:
    return InvalidRequestError(why, "query")
