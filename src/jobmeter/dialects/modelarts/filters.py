"""Converts the filters of a job search. A filter without a value (``[]``, ``[""]``, ``["", ""]``) has no effect."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from jobmeter.dialects.modelarts.errors import UNSUPPORTED_KEY, UNSUPPORTED_OPERATOR, UNSUPPORTED_VALUE, RefusedError
from jobmeter.dialects.modelarts.names import ALL_PHASES, KINDS, NAME, PHASES
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Condition, JobState, Operator
from jobmeter.model.time import MAX_TIME_MS, parse_time

OPERATORS = ("between", "like", "in", "not")


class ModelArtsFilter(msgspec.Struct):
    """A filter as it is sent."""

    key: str = ""
    operator: str = ""
    value: list[str | int] | str | int | None = None


class SearchFilter(msgspec.Struct, frozen=True):
    """The result of filters: conditions that must all hold, and the possible states (None: every state)."""

    conditions: tuple[Condition, ...] = ()
    states: frozenset[JobState] | None = None

    def intersect(self, other: "SearchFilter") -> "SearchFilter":
        """Return the conjunction of both."""
        states = other.states if self.states is None else self.states
        if self.states is not None and other.states is not None:
            states = self.states & other.states
        return SearchFilter((*self.conditions, *other.conditions), states)


def filter_by(filters: Sequence[ModelArtsFilter]) -> SearchFilter:
    """Return the search of the filters. Raises RefusedError for an invalid one."""
    found = SearchFilter()
    for one in filters:
        values = _values(one)
        if not any(values):
            continue
        read = _KEYS.get(one.key)
        if read is None:
            keys = ", ".join(_KEYS)
            raise RefusedError(UNSUPPORTED_KEY, f"{one.key[:64]!r} is not one of {keys}", "filters.key")
        if one.operator not in OPERATORS:
            text = f"{one.operator[:64]!r} is not one of {', '.join(OPERATORS)}"
            raise RefusedError(UNSUPPORTED_OPERATOR, text, "filters.operator")
        found = found.intersect(read(one, values))
    return found


def _values(one: ModelArtsFilter) -> list[str]:
    values = one.value if isinstance(one.value, list) else [one.value]
    return ["" if value is None else str(value).strip() for value in values]


def _text(field: str, otherwise: str = "") -> Callable[[ModelArtsFilter, list[str]], SearchFilter]:
    """Return a reader of conditions on a text; jobs without one count as ``otherwise``."""

    def read(one: ModelArtsFilter, values: list[str]) -> SearchFilter:
        operator = {"like": Operator.CONTAINS, "in": Operator.IN, "not": Operator.NOT_IN}.get(one.operator)
        if operator is None:
            raise _make_operator_error(one)
        given = tuple(value for value in values if value)
        return SearchFilter((Condition(field, operator, given, otherwise),))

    return read


def _create_time(one: ModelArtsFilter, values: list[str]) -> SearchFilter:
    if one.operator != "between":
        raise _make_operator_error(one)
    if len(values) != 2:
        raise RefusedError(UNSUPPORTED_VALUE, "between needs two values, of which one may be empty", "filters.value")
    first, last = (_time(value) for value in values)
    return SearchFilter((Condition("created", Operator.BETWEEN, (first, last)),))


def _time(value: str) -> int | None:
    try:
        # Longer numbers mean a distant end, as scripts write for "for ever".
        far = value.isdecimal() and int(value[:20]) > MAX_TIME_MS
        return None if not value or far else parse_time(value, "filters.value")
    except InvalidRequestError as error:
        raise RefusedError(UNSUPPORTED_VALUE, error.message, "filters.value") from error


def _phase(one: ModelArtsFilter, values: list[str]) -> SearchFilter:
    phases = _members(one, values, ALL_PHASES)
    return SearchFilter(states=frozenset(state for state, (phase, _) in PHASES.items() if phase in phases))


def _kind(one: ModelArtsFilter, values: list[str]) -> SearchFilter:
    # A job without a kind in its record is a plain one.
    kinds = _members(one, values, KINDS)
    others = tuple(kind for kind in KINDS if kind not in kinds)
    field = f"extra.{NAME}.kind"
    if "job" not in kinds:
        return (
            SearchFilter((Condition(field, Operator.IN, tuple(sorted(kinds))),))
            if kinds
            else SearchFilter(states=frozenset())
        )
    return SearchFilter((Condition(field, Operator.NOT_IN, others),) if others else ())


def _members(one: ModelArtsFilter, values: list[str], every: Iterable[str]) -> set[str]:
    """Return the members of a closed set that a filter selects."""
    given = [value.casefold() for value in values if value]
    if one.operator == "between":
        raise _make_operator_error(one)
    if one.operator == "like":
        return {word for word in every if any(value in word.casefold() for value in given)}
    return {word for word in every if (word.casefold() in given) == (one.operator == "in")}


def _make_operator_error(one: ModelArtsFilter) -> RefusedError:
    return RefusedError(UNSUPPORTED_OPERATOR, f"{one.operator} is not supported for {one.key}", "filters.operator")


_KEYS: Mapping[str, Callable[[ModelArtsFilter, list[str]], SearchFilter]] = {
    "name": _text("name", "id"),
    "create_time": _create_time,
    "phase": _phase,
    "algorithm_name": _text(f"extra.{NAME}.algorithm/name", f"extra.{NAME}.algorithm_name"),
    "kind": _kind,
    "user_id": _text("user"),
    "user_name": _text("user", f"extra.{NAME}.metadata/user_name"),
    "runtime_type": _text(f"extra.{NAME}.runtime_type"),
    "id": _text("id"),
    "job_id": _text("id"),
    "pool_id": _text(f"extra.{NAME}.spec/resource/pool_id", "resource_group"),
    "description": _text(f"extra.{NAME}.description", f"extra.{NAME}.metadata/description"),
}
KEYS = tuple(_KEYS)
"""The keys of search filters."""
