"""Filters on tags.

https://opentsdb.net/docs/build/html/user_guide/query/filters.html

Regular expressions are matched by RE2 (through Arrow), in time linear in the text. What RE2 does not support
(look-around, back references) is refused.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.query.tsdb.tags import Tagged

MOST_FILTERS = 64
_LONGEST = 4_096
_LONGEST_REGEXP = 1_024

Chooses = Callable[[Sequence[str]], set[str]]
"""Function that selects the matching values from distinct values of a tag."""


class Filter(msgspec.Struct, frozen=True):
    """Filter on a tag. ``kind`` is a key of ``KINDS``."""

    tag: str
    kind: str
    pattern: str
    group_by: bool = False


def choose(series: Sequence[Tagged], filters: Sequence[Filter]) -> list[Tagged]:
    """Select the series that match every filter. Raises InvalidRequestError for an invalid pattern."""
    left = list(series)
    for one in filters:
        left = _apply_filter(left, one)
    return left


def _apply_filter(series: Sequence[Tagged], one: Filter) -> list[Tagged]:
    values = [each.tag(one.tag) for each in series]
    if one.kind == "not_key":
        return [each for each, value in zip(series, values, strict=True) if value is None]
    matching = KINDS[one.kind].make(one.pattern)(sorted({value for value in values if value is not None}))
    # A series without the tag matches no filter on it, not even a negative one: OpenTSDB scans for the key.
    return [each for each, value in zip(series, values, strict=True) if value in matching]


def make_filter(tag: str, kind: str, pattern: str, *, group_by: bool) -> Filter:
    """Build a valid filter. Raises InvalidRequestError (field ``filters``)."""
    if not tag:
        raise InvalidRequestError("Tag key cannot be null or empty", "filters")
    if kind not in KINDS:
        raise InvalidRequestError(f"No such filter type: {kind[:64]}", "filters")
    if len(pattern) > _LONGEST:
        raise InvalidRequestError(f"A filter may have {_LONGEST} characters", "filters")
    if kind == "not_key":
        if pattern:
            raise InvalidRequestError("The filter of not_key must be null or empty", "filters")
    elif not pattern:
        raise InvalidRequestError("Filter cannot be null or empty", "filters")
    else:
        KINDS[kind].make(pattern)
    return Filter(tag, kind, pattern, group_by)


def _literals(pattern: str) -> set[str]:
    found = set(pattern.split("|")) - {""}
    if not found:
        raise InvalidRequestError("Filter must contain at least one value", "filters")
    return found


def _literal_or(pattern: str) -> Chooses:
    literals = _literals(pattern)
    return lambda values: literals & set(values)


def _iliteral_or(pattern: str) -> Chooses:
    literals = {value.lower() for value in _literals(pattern)}
    return lambda values: {value for value in values if value.lower() in literals}


def _negate(make: Callable[[str], Chooses]) -> Callable[[str], Chooses]:
    def negative(pattern: str) -> Chooses:
        chooses = make(pattern)
        return lambda values: set(values) - chooses(values)

    return negative


def _wildcard(pattern: str) -> Chooses:
    if "*" not in pattern:
        raise InvalidRequestError("Filter must contain an asterisk", "filters")
    first, *middle, last = pattern.split("*")

    def matches(value: str) -> bool:
        if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
            return False
        at, end = len(first), len(value) - len(last)
        for part in middle:
            found = value.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return lambda values: {value for value in values if matches(value)}


def _iwildcard(pattern: str) -> Chooses:
    chooses = _wildcard(pattern.lower())

    def insensitive(values: Sequence[str]) -> set[str]:
        matching = chooses(sorted({value.lower() for value in values}))
        return {value for value in values if value.lower() in matching}

    return insensitive


def _regexp(pattern: str) -> Chooses:
    if len(pattern) > _LONGEST_REGEXP:
        raise InvalidRequestError(f"A regular expression may have {_LONGEST_REGEXP} characters", "filters")
    _search(pattern, [""])
    return lambda values: _search(pattern, values)


def _search(pattern: str, values: Sequence[str]) -> set[str]:
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for the few that ask so
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    try:
        found = pc.match_substring_regex(pa.array(values, pa.string()), pattern=pattern)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"Invalid regular expression: {pattern[:100]}", "filters") from error
    return {value for value, matched in zip(values, found.to_pylist(), strict=True) if matched}


class TagFilterKind(msgspec.Struct, frozen=True):
    """Type of filter, with its entry of ``/api/config/filters``."""

    make: Callable[[str], Chooses]
    examples: str
    description: str


def _kind(name: str, make: Callable[[str], Chooses], pattern: str, description: str) -> tuple[str, TagFilterKind]:
    body = f'{{"type":"{name}","tagk":"host","filter":"{pattern}","groupBy":false}}'
    return name, TagFilterKind(make, f"host={name}({pattern})  {body}", description)


_CASE = "Ignores case."
_OR = "One or more exact values, separated by | (pipe); a series matches if its tag has one of them."
_NOT = "One or more exact values, separated by | (pipe); a series matches if its tag has another value."
_GLOB = "A pattern in which * (asterisk) matches any text; at least one is needed. A lone * matches every value."

KINDS: Mapping[str, TagFilterKind] = dict(
    (
        _kind("iliteral_or", _iliteral_or, "web01|web02|web03", f"{_OR} {_CASE}"),
        _kind("iwildcard", _iwildcard, "web*.tsdb.net", f"{_GLOB} {_CASE}"),
        _kind("literal_or", _literal_or, "web01|web02|web03", _OR),
        _kind("not_iliteral_or", _negate(_iliteral_or), "web01|web02|web03", f"{_NOT} {_CASE}"),
        _kind("not_key", _wildcard, "", "Matches series without the tag. The filter must be empty."),
        _kind("not_literal_or", _negate(_literal_or), "web01|web02|web03", _NOT),
        _kind(
            "regexp",
            _regexp,
            "web.*",
            "A regular expression that is searched for in the value; ^ and $ anchor it. The syntax is "
            "that of RE2: there is no look-around and no back reference.",
        ),
        _kind("wildcard", _wildcard, "web*.tsdb.net", _GLOB),
    )
)
"""Every type of filter by name."""


def parse_tag_filter(tag: str, value: str, *, group_by: bool) -> Filter:
    """Parse a filter in the form before version 2.2: ``*``, ``a|b``, ``a``, ``a*``; or ``type(pattern)``.

    See https://opentsdb.net/docs/build/html/api_http/query/index.html#filter-conversions.
    """
    name, bracket, rest = value.partition("(")
    if bracket and rest.endswith(")"):
        return make_filter(tag, name, rest[:-1], group_by=group_by)
    if value == "*":
        return make_filter(tag, "wildcard", value, group_by=group_by)
    if "*" in value:
        return make_filter(tag, "iwildcard", value, group_by=group_by)
    return make_filter(tag, "literal_or", value, group_by=group_by)
