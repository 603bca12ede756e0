"""The samples that a query needs: each of its selectors with the range of times."""

from collections.abc import Iterator

from jobmeter.promql.evaluation import DEFAULT_STEP_MS, LOOKBACK_MS
from jobmeter.promql.nodes import Bound, Node, Subquery, VectorSelector, children

Read = tuple[VectorSelector, int, int]
"""A selector, and the range ``(start, end]`` in ms of its samples."""


def reads(node: Node, start_ms: int, end_ms: int, lookback_ms: int = LOOKBACK_MS) -> list[Read]:
    """Return what a query over ``[start_ms, end_ms]`` reads, each selector once."""
    found: dict[VectorSelector, tuple[int, int]] = {}
    for selector, start, end in _reads(node, (start_ms, end_ms), start_ms, end_ms, lookback_ms):
        before = found.get(selector, (start, end))
        found[selector] = min(start, before[0]), max(end, before[1])
    return [(selector, start, end) for selector, (start, end) in found.items()]


def _reads(node: Node, query: tuple[int, int], start: int, end: int, lookback_ms: int) -> Iterator[Read]:
    if isinstance(node, VectorSelector | Subquery):
        if node.at is not None:
            at = node.at
            start = end = query[0 if at is Bound.START else 1] if isinstance(at, Bound) else at
        start, end = start - node.offset_ms, end - node.offset_ms
        if isinstance(node, VectorSelector):
            yield node, start - (node.range_ms or lookback_ms), end
            return
        step = node.step_ms or DEFAULT_STEP_MS
        start = (start - node.range_ms) // step * step + step
    for child in children(node):
        yield from _reads(child, query, start, end, lookback_ms)
