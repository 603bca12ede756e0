"""Tests of the query plan: it covers the range once, in order, from exact sources, and refuses excessive queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.time import HOUR, MINUTE, SECOND, TimeRange, ceil_to
from jobmeter.query.request import By, JobRef, MetricQuery, NodeRef, Statistic, check
from jobmeter.query.source import split_range, widen_to_hours
from jobmeter.settings import Limits
from jobmeter.store.base import Tier

steps = st.sampled_from([57 * SECOND, MINUTE, 5 * MINUTE, 90 * SECOND, HOUR, 2 * HOUR, 90 * MINUTE])
spans = st.tuples(st.integers(0, 40 * HOUR), st.integers(0, 30 * HOUR)).map(lambda at: TimeRange(at[0], at[0] + at[1]))
trusted = st.lists(st.booleans(), min_size=80, max_size=80).map(
    lambda hours: [TimeRange(at * HOUR, (at + 1) * HOUR) for at, rolled in enumerate(hours) if rolled]
)


@given(spans, steps, trusted)
def test_segments_tile_the_range_and_trust_only_what_is_rolled(span, step, rolled):
    parts = split_range(span, step, rolled)
    assert sum(part.span.length_ms for part in parts) == span.length_ms
    at = span.start_ms
    hours = {part.start_ms for part in rolled}
    for part in parts:
        assert part.span.start_ms == at
        at = part.span.end_ms
        if part.tier is not None:
            assert step % part.tier == 0
            assert part.span.start_ms % part.tier == 0
            assert part.span.end_ms % part.tier == 0
            around = widen_to_hours(part.span)
            assert hours.issuperset(range(around.start_ms, around.end_ms, HOUR))


@given(spans, trusted)
def test_the_coarsest_tier_that_fits_is_taken(span, rolled):
    for part in split_range(span, HOUR, rolled):
        if part.tier is Tier.MINUTE:
            assert ceil_to(part.span.start_ms, HOUR) + HOUR > part.span.end_ms, "a whole hour from its minutes"
    assert all(part.tier is None for part in split_range(span, 57 * SECOND, rolled))


def query(**changes: object) -> MetricQuery:
    fields: dict[str, object] = {
        "subject": JobRef("j"),
        "metrics": ("cpu.usage",),
        "range": TimeRange(0, HOUR),
        "step_ms": MINUTE,
        **changes,
    }
    return MetricQuery(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"step_ms": 0}, "step"),
        ({"step_ms": -60_000}, "step"),
        ({"metrics": ()}, "metric"),
        ({"metrics": ("no.such",)}, "metric"),
        ({"metrics": tuple(f"app.{n}" for n in range(101))}, "metric"),
        ({"aggregate": Aggregate.RATIO}, "aggregate"),
        ({"statistic": Statistic.INCREASE}, "statistic"),
        ({"subject": NodeRef("n"), "by": By.REPLICA}, "by"),
        ({"subject": NodeRef("n"), "by": By.JOB}, "by"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field(changes, field):
    with pytest.raises(InvalidRequestError) as caught:
        check(query(**changes), Limits())
    assert caught.value.field == field


def test_buckets_are_limited():
    asked = query(range=TimeRange(30_000, HOUR + 30_000))
    check(asked, Limits(query_buckets=61))
    with pytest.raises(LimitExceededError) as caught:
        check(asked, Limits(query_buckets=60))
    assert caught.value.field == "step"
