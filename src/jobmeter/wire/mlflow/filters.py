"""Filter strings and orders of ``runs/search``, with the rules of MLflow's ``SearchUtils``."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.wire.mlflow.runs import Run, make_info
from jobmeter.wire.mlflow.values import LoggedPoint

MAX_FILTER, MAX_CLAUSES, MAX_ORDER = 10_000, 100, 100
"""Most characters of a filter, most conditions in it, and most orders of a search."""
METRIC, PARAM, TAG, ATTRIBUTE = "metric", "parameter", "tag", "attribute"
_ENTITIES = {
    **dict.fromkeys(("metric", "metrics"), METRIC),
    **dict.fromkeys(("parameter", "parameters", "param", "params"), PARAM),
    **dict.fromkeys(("tag", "tags"), TAG),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), ATTRIBUTE),
}
_ALIASES = {"created": "start_time", "Created": "start_time", "run name": "run_name", "Run name": "run_name"}
_TEXTS = ("run_id", "run_name", "status", "artifact_uri", "user_id")
_TIMES = ("start_time", "end_time")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_VIEWS: Mapping[str, frozenset[bool]] = {
    "ACTIVE_ONLY": frozenset({False}),
    "DELETED_ONLY": frozenset({True}),
    "ALL": frozenset({False, True}),
}
_NUMBERS, _EQUAL, _LIKES = frozenset(_COMPARE), frozenset({"=", "!="}), frozenset({"LIKE", "ILIKE"})
_NULLS = frozenset({"IS NULL", "IS NOT NULL"})
_LISTS = frozenset({"IN", "NOT IN"})
_SPACE = re.compile(r"\s+")
_COLUMN = re.compile(r"""\s*(?:(?P<entity>\w+|`\w+`)\s*\.\s*)?(?P<key>[\w.]+|`[^`]+`|"[^"]+"|'[^']+')""")
_OPERATOR = re.compile(r"\s*(<=|>=|!=|=|<|>|\bI?LIKE\b|\b(?:NOT\s+)?IN\b|\bIS\s+(?:NOT\s+)?NULL\b)", re.IGNORECASE)
_TEXT = re.compile(r"""\s*('[^']*'|"[^"]*")""")
_NUMBER = re.compile(r"\s*(-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])")
_LIST = re.compile(r"""\s*\(\s*((?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*)\s*,?\s*\)""")
_ITEM = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
_DIRECTION = re.compile(r"\s+(ASC|DESC)\s*", re.IGNORECASE)


class SearchColumn(NamedTuple):
    """Compared or sorted part of a run."""

    kind: str
    key: str


class Clause(NamedTuple):
    """Condition on one column."""

    column: SearchColumn
    comparator: str
    value: Any = None

    def fits(self, run: Run, metrics: Mapping[str, LoggedPoint]) -> bool:
        """Return True if the run meets the condition. An absent value meets only IS NULL."""
        found = get_value(self.column, run, metrics)
        if self.comparator in _NULLS:
            return (found is None) == (self.comparator == "IS NULL")
        if found is None:
            return False
        if self.comparator in _LISTS:
            return (found in self.value) == (self.comparator == "IN")
        if self.comparator in _LIKES:
            return self.value.fullmatch(found) is not None
        return _COMPARE[self.comparator](found, self.value)


class SearchOrder(NamedTuple):
    """Column to sort by."""

    column: SearchColumn
    ascending: bool


def parse(text: str) -> list[Clause]:
    """Read a filter: conditions joined by AND. Raises InvalidRequestError that shows the wrong part."""
    if len(text) > MAX_FILTER:
        raise LimitExceededError(f"A filter may have at most {MAX_FILTER} characters, not {len(text)}.", "filter")
    text = text.strip()
    clauses: list[Clause] = []
    at = 0
    while at < len(text):
        clause, at = _clause(text, at)
        clauses.append(clause)
        if len(clauses) > MAX_CLAUSES:
            raise LimitExceededError(f"A filter may have at most {MAX_CLAUSES} conditions.", "filter")
        if at < len(text):
            joint = _AND.match(text, at)
            if joint is None or joint.end() == len(text):
                raise _make_clause_error(text, at)
            at = joint.end()
    return clauses


def parse_order(texts: Sequence[str]) -> list[SearchOrder]:
    """Read orders, the most significant first. Raises InvalidRequestError."""
    if len(texts) > MAX_ORDER:
        raise LimitExceededError(f"A search may have at most {MAX_ORDER} orders.", "order_by")
    orders = []
    for text in texts:
        match = _COLUMN.match(text)
        rest = text[match.end() :] if match else text
        direction = _DIRECTION.fullmatch(rest + " ") if rest.strip() else None
        if match is None or (rest.strip() and direction is None):
            raise InvalidRequestError(f"Invalid order_by clause {text[:100]!r}. Could not be parsed.", "order_by")
        orders.append(SearchOrder(_column(match), direction is None or direction[1].upper() == "ASC"))
    return orders


def parse_view(view: str) -> frozenset[bool]:
    """Return the values of ``deleted`` that a view shows. Raises InvalidRequestError."""
    if view not in _VIEWS:
        raise InvalidRequestError(f"run_view_type must be one of {', '.join(_VIEWS)}", "run_view_type")
    return _VIEWS[view]


def meets_all(clauses: Sequence[Clause], run: Run, metrics: Mapping[str, LoggedPoint]) -> bool:
    """Return True if the run meets all conditions."""
    return all(clause.fits(run, metrics) for clause in clauses)


def list_metric_keys(columns: Iterable[SearchColumn]) -> frozenset[str]:
    """Return the names of the metrics among columns."""
    return frozenset(column.key for column in columns if column.kind == METRIC)


def sort(
    runs: Iterable[Run], orders: Sequence[SearchOrder], metrics: Mapping[str, Mapping[str, LoggedPoint]]
) -> list[Run]:
    """Sort runs by the orders, then the newest start first, then by id. Absent values come last."""
    found = sorted(runs, key=lambda run: (-run.start, run.id))
    for order in reversed(orders):
        found.sort(key=partial(_rank, order, metrics), reverse=not order.ascending)
    return found


def get_value(column: SearchColumn, run: Run, metrics: Mapping[str, LoggedPoint]) -> Any:  # noqa: ANN401 - a text or a number
    """Return the value of a column; None if the run lacks it."""
    if column.kind == METRIC:
        point = metrics.get(column.key)
        return None if point is None else float(point.value)
    if column.kind == ATTRIBUTE:
        return make_info(run).get(column.key)
    return (run.params if column.kind == PARAM else run.tags).get(column.key)


def _rank(order: SearchOrder, metrics: Mapping[str, Mapping[str, LoggedPoint]], run: Run) -> tuple[bool, Any]:
    value = get_value(order.column, run, metrics.get(run.id, {}))
    infinity = math.inf if order.ascending else -math.inf
    absent = value is None or (isinstance(value, float) and math.isnan(value))
    if absent:
        value = infinity if value is None else -infinity
    return (absent if order.ascending else not absent), value


def _clause(text: str, at: int) -> tuple[Clause, int]:
    match = _COLUMN.match(text, at)
    compare = _OPERATOR.match(text, match.end()) if match else None
    if match is None or compare is None:
        raise _make_clause_error(text, at)
    column, comparator = _column(match), _SPACE.sub(" ", compare[1].upper())
    allowed = _list_allowed(column)
    if comparator not in allowed:
        raise InvalidRequestError(f"Invalid comparator {comparator!r} not one of {sorted(allowed)}", "filter")
    if comparator in _NULLS:
        return Clause(column, comparator), compare.end()
    form = _LIST if comparator in _LISTS else _NUMBER if _is_number(column) else _TEXT
    value = form.match(text, compare.end())
    if value is None:
        expected = "numeric value" if form is _NUMBER else "quoted string value"
        raise InvalidRequestError(f"Expected a {expected} for {column.kind} {column.key!r}", "filter")
    return Clause(column, comparator, _value(comparator, form, value[1])), value.end()


def _value(comparator: str, form: re.Pattern[str], text: str) -> Any:  # noqa: ANN401 - what the comparison needs
    if form is _NUMBER:
        return float(text)
    if form is _LIST:
        return frozenset(single or double for single, double in _ITEM.findall(text))
    return _compile_like(text[1:-1], ignore_case=comparator == "ILIKE") if comparator in _LIKES else text[1:-1]


def _compile_like(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Compile a pattern with ``%`` and ``_``. Atomic groups bound the time by both lengths' product."""
    first, *rest = (re.escape(part).replace("_", ".") for part in pattern.split("%"))
    last = f".*{rest.pop()}" if rest else ""
    middle = "".join(f"(?>.*?{part})" for part in rest if part)
    return re.compile(first + middle + last, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _column(match: re.Match[str]) -> SearchColumn:
    entity, key = match["entity"], match["key"]
    quoted = key[0] in "`\"'"
    if entity is None and not quoted and "." in key:
        entity, _, key = key.partition(".")
    kind = ATTRIBUTE if entity is None else _ENTITIES.get(entity.strip("`"), "")
    key = key[1:-1] if quoted else key
    if not kind or not key:
        raise InvalidRequestError(
            f"Invalid entity type {(entity or '')[:64]!r}. Valid values are metric, parameter, tag, attribute", "filter"
        )
    if kind == ATTRIBUTE:
        key = _ALIASES.get(key, key)
        if key not in (*_TEXTS, *_TIMES):
            valid = ", ".join((*_TEXTS, *_TIMES))
            raise InvalidRequestError(f"Invalid attribute key {key[:64]!r} specified. Valid keys are {valid}", "filter")
    return SearchColumn(kind, key)


def _is_number(column: SearchColumn) -> bool:
    return column.kind == METRIC or (column.kind == ATTRIBUTE and column.key in _TIMES)


def _list_allowed(column: SearchColumn) -> frozenset[str]:
    if _is_number(column):
        return _NUMBERS
    if column.kind == ATTRIBUTE:
        return _EQUAL | _LIKES | (_LISTS if column.key == "run_id" else frozenset())
    return _EQUAL | _LIKES | _NULLS


def _make_clause_error(text: str, at: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"Invalid clause(s) in filter string: {text[at : at + 100]!r}. Join conditions such as metrics.loss < 0.5, "
        "params.optimizer = 'adam' by AND",
        "filter",
    )
