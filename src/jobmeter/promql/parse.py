"""Texts of PromQL to nodes, by ``promql-parser``."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import promql_parser as library

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.promql.nodes import (
    NAME,
    Aggregation,
    Binary,
    Bound,
    Cardinality,
    FunctionCall,
    Matcher,
    Negation,
    Node,
    Number,
    Subquery,
    Text,
    VectorMatch,
    VectorMatching,
    VectorSelector,
)

LONGEST = 32_768
"""Most characters of a query."""
_LONGEST_CACHED = 1_000
"""Most characters of a query whose nodes are cached: a dashboard repeats its texts."""
DEEPEST = 60
MOST_OPERATORS = 150
"""Deepest nesting of brackets, and most operators: the parser and the evaluation recurse for each."""
_OPERATOR = re.compile(r"[-+*/%^]|[=!<>]=?|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_PIECE = re.compile(r"""#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|[()\[\]{}]|[^#"'`()\[\]{}]+|.""", re.DOTALL)
_MATCHES = {
    "MatchOp.Equal": VectorMatch.EQUAL,
    "MatchOp.NotEqual": VectorMatch.NOT_EQUAL,
    "MatchOp.Re": VectorMatch.REGEX,
    "MatchOp.NotRe": VectorMatch.NOT_REGEX,
}
_CARDINALITIES = {
    "VectorMatchCardinality.OneToOne": Cardinality.ONE_TO_ONE,
    "VectorMatchCardinality.ManyToOne": Cardinality.MANY_TO_ONE,
    "VectorMatchCardinality.OneToMany": Cardinality.ONE_TO_MANY,
    "VectorMatchCardinality.ManyToMany": Cardinality.MANY_TO_MANY,
}


def parse(text: str) -> Node:
    """Return the node of a query. Raises InvalidRequestError for a text that is not PromQL, too long or too deep."""
    return _parse_node(text) if len(text) <= _LONGEST_CACHED else _node(parse_text(text))


@lru_cache(maxsize=512)
def _parse_node(text: str) -> Node:
    return _node(parse_text(text))


def format_pretty(text: str) -> str:
    """Return the query in the usual layout. Raises as ``parse`` does."""
    return str(parse_text(text).prettify())


def parse_text(text: str) -> Any:  # noqa: ANN401
    """Return the parser's own tree. Raises as ``parse`` does."""
    if len(text) > LONGEST:
        raise LimitExceededError(f"The query has {len(text)} characters; the limit is {LONGEST}.", "query")
    if not text.strip():
        raise InvalidRequestError("The query is empty.", "query")
    try:
        return library.parse(_replace_raw_strings(text))
    except ValueError as error:
        raise InvalidRequestError(f"parse error: {error}", "query") from error


def _replace_raw_strings(text: str) -> str:
    """Return the text with its strings in backquotes, which have no escapes, as strings in double quotes."""
    pieces = []
    depth = operators = 0
    braces = False
    for piece in _PIECE.findall(text):
        braces = piece == "{" or (braces and piece != "}")
        depth += (piece in "([{") - (piece in ")]}")
        if piece[0] not in "\"'`#" and not braces:
            operators += len(_OPERATOR.findall(piece))
        if depth > DEEPEST or operators > MOST_OPERATORS:
            raise LimitExceededError(
                f"The query is too deep: it may have at most {DEEPEST} nested brackets and {MOST_OPERATORS} operators.",
                "query",
            )
        raw = piece[0] == "`" and len(piece) > 1
        pieces.append(_quote(piece[1:-1]) if raw else piece)
    return "".join(pieces)


def _quote(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inner}"'


def _node(found: Any) -> Node:  # noqa: ANN401 - the parser's own classes have no common base
    if isinstance(found, library.ParenExpr):
        return _node(found.expr)
    make = _NODES.get(type(found))
    if make is None:
        raise InvalidRequestError(f"parse error: {type(found).__name__} is not supported", "query")
    return make(found)


def _aggregation(found: Any) -> Aggregation:  # noqa: ANN401
    modifier = found.modifier
    return Aggregation(
        operator=str(found.op),
        inner=_node(found.expr),
        parameter=None if found.param is None else _node(found.param),
        without=modifier is not None and modifier.type == library.AggModifierType.Without,
        labels=tuple(modifier.labels) if modifier is not None else (),
    )


def _subquery(found: Any) -> Subquery:  # noqa: ANN401
    return Subquery(
        inner=_node(found.expr),
        range_ms=_milliseconds(found.range),
        step_ms=_milliseconds(found.step),
        offset_ms=_milliseconds(found.offset),
        at=_convert_at(found.at),
    )


def _binary(found: Any) -> Binary:  # noqa: ANN401
    modifier = found.modifier
    operator = str(found.op)
    left, right = _node(found.lhs), _node(found.rhs)
    if modifier is None:
        sets = operator in {"and", "or", "unless"}
        matching = VectorMatching(cardinality=Cardinality.MANY_TO_MANY) if sets else VectorMatching()
        return Binary(operator=operator, left=left, right=right, matching=matching)
    labels = modifier.matching
    fills = modifier.fill_values
    matching = VectorMatching(
        cardinality=_CARDINALITIES[str(modifier.card)],
        on=labels is not None and labels.type == library.LabelModifierType.Include,
        labels=tuple(labels.labels) if labels is not None else (),
        include=tuple(modifier.group_labels or ()),
        fill_left=fills.lhs if fills else None,
        fill_right=fills.rhs if fills else None,
    )
    return Binary(operator=operator, left=left, right=right, as_bool=modifier.return_bool, matching=matching)


def _selector(found: Any, range_ms: int) -> VectorSelector:  # noqa: ANN401
    name = (Matcher(NAME, VectorMatch.EQUAL, found.name),) if found.name else ()
    either = [list(one) for one in found.matchers.or_matchers] or [found.matchers.matchers]
    return VectorSelector(
        alternatives=tuple(
            (*name, *(Matcher(one.name, _MATCHES[str(one.op)], one.value) for one in matchers)) for matchers in either
        ),
        range_ms=range_ms,
        offset_ms=_milliseconds(found.offset),
        at=_convert_at(found.at),
    )


def _milliseconds(length: timedelta | None) -> int:
    return 0 if length is None else round(length / _MILLISECOND)


def _convert_at(found: Any) -> int | Bound | None:  # noqa: ANN401
    if found is None:
        return None
    if found.type == library.AtModifierType.At:
        at: int = round((found.at - _EPOCH) / _MILLISECOND)
        return at
    return Bound.START if found.type == library.AtModifierType.Start else Bound.END


_NODES: dict[type, Callable[[Any], Node]] = {
    library.NumberLiteral: lambda found: Number(found.val),
    library.StringLiteral: lambda found: Text(found.val),
    library.UnaryExpr: lambda found: Negation(_node(found.expr)),
    library.VectorSelector: lambda found: _selector(found, 0),
    library.MatrixSelector: lambda found: _selector(found.vector_selector, _milliseconds(found.range)),
    library.SubqueryExpr: _subquery,
    library.Call: lambda found: FunctionCall(found.func.name, tuple(_node(one) for one in found.args)),
    library.AggregateExpr: _aggregation,
    library.BinaryExpr: _binary,
}
