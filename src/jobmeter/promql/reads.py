"""Lists the samples that a query needs: each of its selectors with a range of times."""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.promql.aggregate import JOINED
from jobmeter.promql.evaluation import DEFAULT_STEP_MS, LOOKBACK_MS, MOST_STEPS
from jobmeter.promql.functions import ARITHMETIC
from jobmeter.promql.nodes import (
    Aggregation,
    Binary,
    Bound,
    FunctionCall,
    Negation,
    Node,
    Number,
    Subquery,
    VectorMatch,
    VectorSelector,
    list_children,
)
from jobmeter.promql.over_time import GROWING, LOOPED, OVER_TIME, ROLLED, SPREAD

MOST_CUTS = 500
"""Most ends of windows between which samples are rolled up."""
_COST_OF_RANGE, _COST_OF_SPREAD = 3, 16
"""Measured costs of a function of ranges, relative to arithmetic with an array."""
_FEW_MATCHERS, _SHORT_PATTERNS = 20, 1_000
"""Most matchers of a brief selector, and most characters of its regular expressions."""
_SLOW_PATTERN = re.compile(r"\{|\\[pP]")
"""Repetitions and classes of Unicode: an expression of few characters may take a second to compile."""


class SelectorRead(msgspec.Struct, frozen=True, eq=False):
    """A selector, and the range ``(start_ms, end_ms]`` of its samples.

    With ``cuts``, times in ms in ascending order, the query needs only statistics of the samples between two cuts. A
    sample at the time of a cut belongs to the part after it. Without ``cuts`` the query needs the samples. ``growth``:
    the query needs the growth of counters.
    """

    selector: VectorSelector
    start_ms: int
    end_ms: int
    cuts: tuple[int, ...] | None = None
    growth: bool = False


def list_reads(node: Node, times: Int64s, lookback_ms: int = LOOKBACK_MS, quick_ms: int = 0) -> list[SelectorRead]:
    """Return the reads of a query at ``times``, int64 in ms and ascending; each selector once.

    A read of at most ``quick_ms`` has no cuts: samples are read as quickly as statistics.
    """
    found: dict[VectorSelector, SelectorRead] = {}
    for one in _reads(node, (int(times[0]), int(times[-1])), times, (lookback_ms, quick_ms), ""):
        before = found.get(one.selector)
        found[one.selector] = one if before is None else _join_reads(before, one)
    return list(found.values())


@lru_cache(maxsize=128)
def estimate_brief_cost(node: Node) -> int:
    """Return the cost of a query whose functions all compute with whole arrays, 0 for any other query.

    The cost of most nodes is 1. A query with many matchers, or slow regular expressions, has cost 0.
    """
    cost = 1
    match node:
        case Number() | Negation():
            brief = True
        case VectorSelector():
            brief = _is_brief(node)
        case Aggregation(operator=operator, parameter=parameter):
            brief = operator in JOINED and parameter is None
        case FunctionCall(function=function, arguments=arguments):
            cost = _COST_OF_SPREAD if function in SPREAD else _COST_OF_RANGE if function in OVER_TIME else 1
            brief = len(arguments) == 1 and (function in ARITHMETIC or function in OVER_TIME.keys() - LOOPED)
        case Binary(left=left, right=right):
            brief = isinstance(left, Number) or isinstance(right, Number)
        case _:
            brief = False
    below = (
        [estimate_brief_cost(child) for child in list_children(node) if not isinstance(child, Number)] if brief else [0]
    )
    return cost + sum(below) if all(below) else 0


def _is_brief(selector: VectorSelector) -> bool:
    matchers = [one for alternative in selector.alternatives for one in alternative]
    patterns = [one.value for one in matchers if one.match in {VectorMatch.REGEX, VectorMatch.NOT_REGEX}]
    is_short = len(matchers) <= _FEW_MATCHERS and sum(map(len, patterns)) <= _SHORT_PATTERNS
    return is_short and not any(map(_SLOW_PATTERN.search, patterns))


def _join_reads(one: SelectorRead, other: SelectorRead) -> SelectorRead:
    cuts = None if one.cuts is None or other.cuts is None else tuple(sorted({*one.cuts, *other.cuts}))
    bounds = min(one.start_ms, other.start_ms), max(one.end_ms, other.end_ms)
    return SelectorRead(one.selector, *bounds, cuts, one.growth or other.growth)


def _reads(
    node: Node, query: tuple[int, int], times: Int64s, lengths_ms: tuple[int, int], function: str
) -> Iterator[SelectorRead]:
    if isinstance(node, VectorSelector | Subquery):
        if node.at is not None:
            at = node.at
            times = np.array([query[0 if at is Bound.START else 1] if isinstance(at, Bound) else at], np.int64)
        times = times - node.offset_ms
        start, end = int(times[0]), int(times[-1])
        if isinstance(node, VectorSelector):
            lookback_ms, quick_ms = lengths_ms
            length = node.range_ms or lookback_ms
            is_rolled = function in ROLLED and node.range_ms and end - start + length > quick_ms
            cuts = _cuts(times, length) if is_rolled else None
            yield SelectorRead(node, start - length, end, cuts, function in GROWING)
            return
        step = node.step_ms or DEFAULT_STEP_MS
        first = (start - node.range_ms) // step * step + step
        # A subquery with too many steps is refused later: its bounds suffice here.
        few = (end - first) // step < MOST_STEPS
        times = np.arange(first, end + 1, step, dtype=np.int64) if few else np.array([first, end], np.int64)
        times = times if len(times) else np.array([first], np.int64)
    inner = node.function if isinstance(node, FunctionCall) else ""
    for child in list_children(node):
        yield from _reads(child, query, times, lengths_ms, inner)


def _cuts(ends: Int64s, length_ms: int) -> tuple[int, ...] | None:
    if len(ends) > MOST_CUTS:
        return None
    found = np.unique(np.concatenate((ends - length_ms, ends))) + 1
    return tuple(found.tolist()) if len(found) <= MOST_CUTS else None
