"""Tests that roll-up rows are exact for the samples, in every format on disk."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store_contract.samples import FOREVER, batch_of, brute_buckets, read_all, stored_buckets
from tests.store_contract.slot import Slot
from tests.unit.store.clickhouse.test_engine import ask

from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.store.base import Tier

KINDS = {
    "decimals": st.integers(-(10**6), 10**6).map(lambda number: number / 100),
    "long": st.integers(0, 10**13).map(lambda number: number / 10**13),
    "bytes": st.integers(0, 2**52).map(float),
    "doubles": st.floats(0, 1),
    "odd": st.one_of(st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 0.1, 2.0**53, 1e15, 1e-15])),
    "idle": st.sampled_from([0.0, 0.0, 0.0, 0.5]),
    "same": st.just(1 / 3),
}
EXACT = ("count", "minimum", "maximum", "first", "first_time", "last", "last_time", "elapsed")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_buckets_are_those_of_the_samples(chdb_store, kind, data):
    slot = Slot()
    series = [slot.gauge("worker-0"), slot.counter("worker-1")]
    times = data.draw(st.lists(st.integers(0, 2 * HOUR // 5_000), min_size=1, max_size=80, unique=True))
    values = data.draw(st.lists(KINDS[kind], min_size=len(times), max_size=len(times)))
    written = {
        (series[at % 2], slot.start + time * 5_000): value
        for at, (time, value) in enumerate(zip(sorted(times), values, strict=True))
    }
    span = TimeRange(slot.start, slot.start + 3 * HOUR)
    chdb_store.append_all((batch_of(written),), FOREVER)
    chdb_store.roll_up(slot.start + 3 * HOUR)
    assert read_all(chdb_store, series, span) == written
    for tier in Tier:
        found, expected = (
            stored_buckets(chdb_store, series, span, tier),
            brute_buckets(written, series, span, tier),
        )
        assert found.keys() == expected.keys()
        for key, bucket in expected.items():
            assert [getattr(found[key], name) for name in EXACT] == [getattr(bucket, name) for name in EXACT]
            most = max(abs(bucket.minimum), abs(bucket.maximum)) * bucket.count
            assert math.isclose(found[key].sum, bucket.sum, rel_tol=1e-12, abs_tol=most * 1e-13)
            assert math.isclose(found[key].increase, bucket.increase, rel_tol=1e-12, abs_tol=most * 1e-13)


def test_minutes_of_decimals_lie_as_numbers(empty_store):
    slot = Slot()
    written = {(slot.gauge(), slot.start + at * 15_000): 50 + at % 7 / 100 for at in range(40)}
    written |= {(slot.gauge("worker-1"), slot.start + at * MINUTE): math.pi for at in range(10)}
    empty_store.append_all((batch_of(written),), FOREVER)
    empty_store.roll_up(slot.start + HOUR)
    assert ask(empty_store, "SELECT scale, low, rise, sum FROM minutes ORDER BY scale, time LIMIT 1") == [
        (3, 5000, 3, 0.0)
    ]
    assert ask(empty_store, "SELECT scale, count(), sum(low), any(minimum), sum(maximum) FROM minutes GROUP BY 1") == [
        (3, 10, 50_007, 0.0, 0.0),
        (255, 10, 0, math.pi, 0.0),
    ]
