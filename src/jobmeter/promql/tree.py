"""Converts nodes to the JSON with which Prometheus answers for a parsed query (``web/api/v1/translate_ast.go``)."""

from typing import Any

from jobmeter.promql.nodes import (
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
    VectorSelector,
)
from jobmeter.promql.numbers import format_number


def make_tree(node: Node) -> dict[str, Any]:
    """Return the JSON of a node and its child nodes."""
    match node:
        case Number(value=number):
            return {"type": "numberLiteral", "val": format_number(number)}
        case Text(value=text):
            return {"type": "stringLiteral", "val": text}
        case VectorSelector():
            return _selector(node)
        case Subquery():
            moved = {"offset": node.offset_ms, **_describe_at(node.at)}
            return {
                "type": "subquery",
                "expr": make_tree(node.inner),
                "range": node.range_ms,
                "step": node.step_ms,
                **moved,
            }
        case Negation(inner=inner):
            return {"type": "unaryExpr", "op": "-", "expr": make_tree(inner)}
        case Binary():
            return _binary(node)
        case Aggregation():
            return {
                "type": "aggregation",
                "op": node.operator,
                "expr": make_tree(node.inner),
                "param": None if node.parameter is None else make_tree(node.parameter),
                "grouping": list(node.labels),
                "without": node.without,
            }
        case FunctionCall(function=function, arguments=arguments):
            return {"type": "call", "func": {"name": function}, "args": [make_tree(one) for one in arguments]}


def _selector(node: VectorSelector) -> dict[str, Any]:
    kind = "matrixSelector" if node.range_ms else "vectorSelector"
    found: dict[str, Any] = {"type": kind, "name": node.name, "offset": node.offset_ms, **_describe_at(node.at)}
    if node.range_ms:
        found["range"] = node.range_ms
    alternatives = [[_matcher(one) for one in matchers] for matchers in node.alternatives]
    found["matchers"] = alternatives[0]
    if len(alternatives) > 1:
        found["alternatives"] = alternatives
    return found


def _matcher(one: Matcher) -> dict[str, str]:
    return {"name": one.label, "type": one.match, "value": one.value}


def _describe_at(at: int | Bound | None) -> dict[str, Any]:
    bound = isinstance(at, Bound)
    return {"timestamp": None if bound else at, "startOrEnd": str(at) if bound else None}


def _binary(node: Binary) -> dict[str, Any]:
    matching = node.matching
    plain = matching.cardinality is Cardinality.ONE_TO_ONE and not matching.on and not matching.labels
    shown = {
        "card": matching.cardinality,
        "labels": list(matching.labels),
        "on": matching.on,
        "include": list(matching.include),
    }
    return {
        "type": "binaryExpr",
        "op": node.operator,
        "lhs": make_tree(node.left),
        "rhs": make_tree(node.right),
        "matching": None if plain else shown,
        "bool": node.as_bool,
    }
