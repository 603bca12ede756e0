"""Tests of ``reads``: a query with only the samples it names has the same answer as with all samples."""

import contextlib
import random

import numpy as np
import pytest
from tests.support.promql_corpus import Memory, Series
from tests.support.promql_random import LENGTH_MS, START_MS, Queries, difference, ours, random_series

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.promql.evaluate import evaluate
from jobmeter.promql.parse import parse
from jobmeter.promql.reads import estimate_brief_cost, list_reads


class Prefetched:
    """Samples of each selector in the ranges named before, and no others."""

    def __init__(self, memory: Memory, query: str, start: int, end: int, step: int) -> None:
        found = list_reads(parse(query), np.arange(start, end + 1, step, dtype=np.int64))
        self.samples = {one.selector: memory.read(one.selector, one.start_ms, one.end_ms) for one in found}

    def read(self, selector, _start, _end):
        return self.samples[selector]


@pytest.mark.parametrize("seed", range(4))
def test_the_samples_that_are_read_suffice(seed):
    rng = random.Random(seed)
    memory = random_series(rng)
    queries = Queries(rng)
    asked = 0
    for _ in range(60):
        query = queries.vector(rng.randrange(1, 4))
        start = START_MS + rng.randrange(LENGTH_MS)
        step = rng.choice((15_000, 60_000))
        end = start + step * rng.choice((0, 1, 20))
        with contextlib.suppress(InvalidRequestError):
            parse(query)
            asked += 1
            whole = ours(memory, query, start, end, step)
            limited = ours(Prefetched(memory, query, start, end, step), query, start, end, step)
            assert difference(whole, limited) == "", query
    assert asked > 40


def test_warnings_name_what_is_doubtful():
    memory = Memory()
    times = np.array([START_MS], np.int64)
    assert evaluate(parse("quantile(2, vector(1))"), memory, times).warnings == [
        "quantile value should be between 0 and 1, got 2"
    ]
    with pytest.raises(InvalidRequestError):
        evaluate(parse("count_values('', vector(1))"), memory, times)


@pytest.mark.parametrize(
    "query",
    [
        "sum_over_time(vector(1)[10d:1s])",
        "quantile_over_time(0.5, vector(time())[1h:1s])",
        "double_exponential_smoothing(vector(time())[1d:10s], 0.5, 0.5)",
        "topk(1, vector(1)) + quantile(0.5, vector(1)) + on () quantile(0.1, vector(1))",
        "count(a) + count(a) + count(a)",
    ],
)
def test_a_query_that_computes_too_much_is_refused(query):
    memory = Memory()
    for number in range(100):
        memory.series[("__name__", "a"), ("number", str(number))] = Series([START_MS], [1.0])
    times = START_MS + np.arange(2_000, dtype=np.int64) * 1_000
    with pytest.raises(LimitExceededError, match="needs more than 600000 values"):
        evaluate(parse(query), memory, times, step_ms=1_000, most=600_000)
    assert evaluate(parse("count(a)"), memory, times, step_ms=1_000, most=600_000).value is not None


@pytest.mark.parametrize(
    ("query", "cost"),
    [
        ("a", 1),
        ("-a", 2),
        ("2 * rate(a[5m]) > 0", 6),
        ("avg by (x) (avg_over_time(a[5m]))", 5),
        ("deriv(a[5m])", 17),
        ("abs(a)", 2),
        ("a + b", 0),
        ("topk(3, a)", 0),
        ("quantile(0.5, a)", 0),
        ("max(mad_over_time(a[5m]))", 0),
        ("quantile_over_time(0.5, a[5m])", 0),
        ("max_over_time(vector(1)[1d:1s])", 0),
        ('label_replace(a, "x", "$1", "y", "(.*)")', 0),
        ('a{b=~"x|y.*", c!="{"}', 1),
        ('a{b=~"(?:x|y){400}"}', 0),
        (r'a{b!~"(\\pL|\\pN)+"}', 0),
        ('a{b=~"' + 1_001 * "x" + '"}', 0),
        ("a{" + ",".join(f'b{number}!="x"' for number in range(20)) + "}", 0),
        ("{" + " or ".join(f'b="{number}"' for number in range(21)) + "}", 0),
    ],
)
def test_queries_are_brief_if_each_part_computes_with_arrays(query, cost):
    assert estimate_brief_cost(parse(query)) == cost
