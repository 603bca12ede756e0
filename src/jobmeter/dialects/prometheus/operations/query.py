"""``/api/v1/query``, ``query_range``, ``format_query``, ``parse_query``.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import numpy as np

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, only
from jobmeter.dialects.prometheus import answers
from jobmeter.dialects.prometheus.arguments import Arguments
from jobmeter.dialects.prometheus.select import Prefetched, prefetch
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.promql.evaluate import MOST_VALUES, evaluate, range_samples
from jobmeter.promql.nodes import Selector, Subquery, Text
from jobmeter.promql.parse import parse, pretty
from jobmeter.promql.tree import tree
from jobmeter.promql.values import Vector

_MOST_WITHOUT_READS = 500_000


def query(call: Call, context: Context) -> Steps:
    """Answer a query at one time."""
    arguments = Arguments(call, context.now_ms)
    node = parse(arguments.required("query"))
    time, lookback, limit = arguments.time("time"), arguments.lookback(), arguments.limit()
    reader = yield from prefetch(node, time, time, lookback, context.project)
    if isinstance(node, Subquery) or (isinstance(node, Selector) and node.range_ms):
        samples = range_samples(node, reader, time, lookback_ms=lookback, most=_most(reader))
        _check_points(len(samples.times), context)
        return answers.samples(samples, limit)
    found = evaluate(node, reader, np.array([time], np.int64), lookback_ms=lookback, most=_most(reader))
    return answers.instant(found, time, limit)


def query_range(call: Call, context: Context) -> Steps:
    """Answer a query at each step of a range."""
    arguments = Arguments(call, context.now_ms)
    node = parse(arguments.required("query"))
    start, end, step = arguments.steps()
    lookback, limit = arguments.lookback(), arguments.limit()
    if isinstance(node, Text | Subquery) or (isinstance(node, Selector) and node.range_ms):
        kind = "string" if isinstance(node, Text) else "range vector"
        raise InvalidRequestError(
            f'invalid parameter "query": invalid expression type "{kind}" for range query, '
            "must be Scalar or instant Vector",
            "query",
        )
    reader = yield from prefetch(node, start, end, lookback, context.project)
    times = np.arange(start, end + 1, step, dtype=np.int64)
    found = evaluate(node, reader, times, step_ms=step, lookback_ms=lookback, most=_most(reader))
    if isinstance(found.value, Vector):
        _check_points(int(found.value.present.sum()), context)
    return answers.ranged(found, times, limit)


def _most(reader: Prefetched) -> int:
    """Return how many values a query may compute. One that reads nothing holds up the event loop."""
    return MOST_VALUES if reader.samples else _MOST_WITHOUT_READS


def _check_points(points: int, context: Context) -> None:
    most = context.limits.query_points
    if points > most:
        raise LimitExceededError(
            f"The answer has {points} points; the limit is {most}. Take a shorter range, a longer step or fewer "
            "series.",
            "range",
        )


def format_query(call: Call, context: Context) -> Steps:
    """Answer a query in the usual layout."""
    return only(answers.success(pretty(Arguments(call, context.now_ms).required("query"))))


def parse_query(call: Call, context: Context) -> Steps:
    """Answer the syntax of a query."""
    return only(answers.success(tree(parse(Arguments(call, context.now_ms).required("query")))))


_QUERY = Parameter("query", "query", "A query of PromQL, in the address or in a posted form.", required=True)
_TIME = "seconds since 1970, with decimals, or RFC 3339"
_LIMIT = Parameter("limit", "query", "Most series of the answer; 0, the default, is all.")
_LOOKBACK = Parameter("lookback_delta", "query", "Age up to which a sample counts. Default: `5m`.")

OPERATIONS = tuple(
    Operation(
        name=name,
        action="metrics:read",
        method="GET, POST",
        path=f"/prometheus/api/v1/{name}",
        answer=answer,
        parameters=parameters,
        text=text,
    )
    for name, answer, parameters, text in (
        (
            "query",
            query,
            (_QUERY, Parameter("time", "query", f"When: {_TIME}. Default: now."), _LIMIT, _LOOKBACK),
            "Gives the value of a query at one time.",
        ),
        (
            "query_range",
            query_range,
            (
                _QUERY,
                Parameter("start", "query", f"First time: {_TIME}.", required=True),
                Parameter("end", "query", f"Last time, included: {_TIME}.", required=True),
                Parameter("step", "query", "Seconds, or a duration such as `1m`.", required=True),
                _LIMIT,
                _LOOKBACK,
            ),
            "Gives the values of a query at each step of a range.",
        ),
        ("format_query", format_query, (_QUERY,), "Gives a query in the usual layout."),
        ("parse_query", parse_query, (_QUERY,), "Gives the syntax of a query as a tree; brackets are left out."),
    )
)
