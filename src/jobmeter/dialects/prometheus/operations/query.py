"""``/api/v1/query``, ``query_range``, ``format_query``, ``parse_query``.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from typing import Annotated

import numpy as np

from jobmeter.dialects.base import Context, Steps, answer_with
from jobmeter.dialects.prometheus import answers
from jobmeter.dialects.prometheus.requests import API, TIME, Duration, EvaluationRequest, QueryRequest, operation
from jobmeter.dialects.prometheus.select import Prefetched, prefetch
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.promql.evaluate import MOST_VALUES, evaluate, read_range
from jobmeter.promql.nodes import Subquery, Text, VectorSelector
from jobmeter.promql.parse import format_pretty, parse
from jobmeter.promql.tree import make_tree
from jobmeter.promql.values import Vector

MOST_STEPS = 11_000
"""Most points of a series in an answer."""
_MOST_WITHOUT_READS = 500_000
_TIME = "seconds since 1970, with decimals, or RFC 3339"


@operation(f"GET, POST {API}/query", "metrics:read", name="query")
class InstantQuery(EvaluationRequest, frozen=True, kw_only=True):
    """Returns the value of a query at one time."""

    time: Annotated[int | None, f"The time of evaluation: {_TIME}. Default: now.", TIME] = None

    def _steps(self) -> Steps:
        node, lookback = parse(self.query), self.find_lookback()
        time = self.context.now_ms if self.time is None else self.time
        times = np.array([time], np.int64)
        reader = yield from prefetch(node, times, lookback, self.context.project)
        if isinstance(node, Subquery) or (isinstance(node, VectorSelector) and node.range_ms):
            samples = read_range(node, reader, time, lookback_ms=lookback, most=_limit_values(reader))
            _check_points(len(samples.times), self.context)
            return answers.make_samples(samples, self.limit)
        found = evaluate(node, reader, times, lookback_ms=lookback, most=_limit_values(reader))
        return answers.answer_instant(found, time, self.limit)


@operation(f"GET, POST {API}/query_range", "metrics:read", name="query_range")
class RangeQuery(EvaluationRequest, frozen=True, kw_only=True):
    """Returns the values of a query at each step of a range."""

    start: Annotated[int, f"First time: {_TIME}.", TIME]
    end: Annotated[int, f"Last time, included: {_TIME}.", TIME]
    step: Annotated[int, "Seconds, or a duration such as `1m`.", Duration()]

    def _steps(self) -> Steps:
        node = parse(self.query)
        self._check_steps()
        lookback = self.find_lookback()
        if isinstance(node, Text | Subquery) or (isinstance(node, VectorSelector) and node.range_ms):
            kind = "string" if isinstance(node, Text) else "range vector"
            raise InvalidRequestError(
                f'invalid parameter "query": invalid expression type "{kind}" for range query, '
                "must be Scalar or instant Vector",
                "query",
            )
        times = np.arange(self.start, self.end + 1, self.step, dtype=np.int64)
        reader = yield from prefetch(node, times, lookback, self.context.project)
        found = evaluate(node, reader, times, step_ms=self.step, lookback_ms=lookback, most=_limit_values(reader))
        if isinstance(found.value, Vector):
            _check_points(int(found.value.present.sum()), self.context)
        return answers.answer_range(found, times, self.limit)

    def _check_steps(self) -> None:
        """Raise InvalidRequestError if there is no step, LimitExceededError if there are too many."""
        if self.end < self.start:
            raise InvalidRequestError('invalid parameter "end": end timestamp must not be before start time', "end")
        if self.step <= 0:
            raise InvalidRequestError(
                'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
                "Try a positive integer",
                "step",
            )
        if (self.end - self.start) // self.step >= MOST_STEPS:
            raise LimitExceededError(
                f"exceeded maximum resolution of {MOST_STEPS:,} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)",
                "step",
            )


@operation(f"GET, POST {API}/format_query", "metrics:read", name="format_query")
class FormatQuery(QueryRequest, frozen=True):
    """Returns a query in the usual layout."""

    def _steps(self) -> Steps:
        return answer_with(answers.make_success(format_pretty(self.query)))


@operation(f"GET, POST {API}/parse_query", "metrics:read", name="parse_query")
class ParseQuery(QueryRequest, frozen=True):
    """Returns the syntax of a query as a tree, without brackets."""

    def _steps(self) -> Steps:
        return answer_with(answers.make_success(make_tree(parse(self.query))))


def _limit_values(reader: Prefetched) -> int:
    """Return the number of values that a query may compute. A query that reads nothing blocks the event loop."""
    return MOST_VALUES if reader.samples else _MOST_WITHOUT_READS


def _check_points(points: int, context: Context) -> None:
    most = context.limits.query_points
    if points > most:
        raise LimitExceededError(
            f"The answer has {points} points; the limit is {most}. Take a shorter range, a longer step or fewer "
            "series.",
            "range",
        )
