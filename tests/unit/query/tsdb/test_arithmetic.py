"""Tests of downsampling, rates, interpolation and aggregation, against the oracle and the documentation's tables."""

import importlib.util
import math
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.batch import References, SampleColumns
from jobmeter.model.time import DAY, TimeRange
from jobmeter.query.reduce import build_buckets
from jobmeter.query.tsdb.aggregate import aggregate
from jobmeter.query.tsdb.calendars import Unit, compute_edges
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.compute import PointQuery, SeriesGroups, prepare
from jobmeter.query.tsdb.compute import compute_points as joined_points
from jobmeter.query.tsdb.downsample import STEPPED, downsample, fill, parse, reduce_steps
from jobmeter.query.tsdb.functions import AGGREGATORS, Missing
from jobmeter.query.tsdb.rate import RateOptions, compute_rates

_SPEC = importlib.util.spec_from_file_location("tsdb_oracle", Path(__file__).parent / "oracle.py")
assert _SPEC is not None
assert _SPEC.loader is not None
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)

UTC = ZoneInfo("UTC")
T0 = 1_356_998_400_000
NAMES = sorted(AGGREGATORS)

values = st.one_of(st.integers(-1000, 1000).map(float), st.floats(-1e6, 1e6, allow_nan=False))
series = st.dictionaries(st.integers(0, 300), values, min_size=1, max_size=20).map(
    lambda found: [(T0 + second * 1000, value) for second, value in sorted(found.items())]
)
groups = st.lists(series, min_size=1, max_size=5)


def columns(group):
    rows = [(index, time, value) for index, one in enumerate(group) for time, value in one]
    index, time, value = zip(*rows, strict=True)
    return SeriesColumns(
        np.array(index, np.int64),
        np.array(time, np.int64),
        np.array([np.nan if one is None else one for one in value], np.float64),
    )


def points(columns, query, groups, span, *, milliseconds, stepped):
    prepared = prepare(columns, query, span, milliseconds=milliseconds, stepped=stepped)
    return joined_points(prepared, query, groups, span)


def lists(found, count):
    rows: list[list[tuple[int, float | None]]] = [[] for _ in range(count)]
    for index, time, value in zip(found.index.tolist(), found.time.tolist(), found.value.tolist(), strict=True):
        rows[index].append((time, None if math.isnan(value) else value))
    return rows


def same(found, expected):
    found = [(time, None if value is None or math.isnan(value) else value) for time, value in found]
    assert [time for time, _ in found] == [time for time, _ in expected]
    for (_, ours), (_, theirs) in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-6)


@given(groups, st.sampled_from(NAMES))
def test_joining_is_what_the_slow_way_gives(group, name):
    rule = oracle.rule_of(name)
    time, value = aggregate(columns(group), AGGREGATORS[name], AGGREGATORS[name].missing)
    same(zip(time.tolist(), value.tolist(), strict=True), oracle.joined(group, name, rule))


@given(groups, st.sampled_from(NAMES), st.sampled_from([1_000, 7_000, 30_000, 3_600_000]))
def test_downsampling_is_what_the_slow_way_gives(group, name, interval):
    if name == "none":
        return
    wanted = parse(f"{interval // 1000}s-{name}", UTC, calendar=False)
    found = lists(downsample(columns(group), wanted, TimeRange(T0, T0 + 300_001)), len(group))
    for ours, one in zip(found, group, strict=True):
        same(ours, oracle.downsampled(one, interval, name))


@given(groups, st.sampled_from(sorted(STEPPED)), st.sampled_from([1_000, 7_000, 60_000]))
def test_precomputed_steps_give_the_same_points(group, name, interval):
    whole = columns(group)
    raw = SampleColumns(whole.index.astype(np.uint32), whole.time, whole.value)
    steps = build_buckets(raw, interval, np.zeros(len(group), np.bool_), References.make_empty(len(group)))
    found = lists(reduce_steps(steps, name), len(group))
    for ours, one in zip(found, group, strict=True):
        same(ours, oracle.downsampled(one, interval, name))


@given(
    groups,
    st.booleans(),
    st.sampled_from([2.0**63 - 1, 65_535.0]),
    st.sampled_from([0.0, 10.0, 10_000.0]),
    st.booleans(),
)
def test_rates_are_what_the_slow_way_gives(group, counter, most, reset, drop):
    options = RateOptions(counter=counter, counter_max=most, reset_value=reset, drop_resets=drop)
    found = lists(compute_rates(columns(group), options), len(group))
    for ours, one in zip(found, group, strict=True):
        expected = oracle.rated(one, counter, most, reset, drop)
        assert [time for time, _ in ours] == [time for time, _ in expected]
        assert [value for _, value in ours] == pytest.approx([value for _, value in expected])


@given(groups, st.sampled_from(["nan", "null", "zero", "scalar#2.5"]), st.integers(0, 200), st.integers(1, 200))
def test_filling_is_what_the_slow_way_gives(group, policy, start, length):
    wanted = parse(f"10s-sum-{policy}", UTC, calendar=False)
    first, last = T0 + start * 1000, T0 + (start + length) * 1000
    value = {"zero": 0.0, "scalar#2.5": 2.5}.get(policy)
    expected = [oracle.filled(oracle.downsampled(one, 10_000, "sum"), 10_000, first, last, value) for one in group]
    down = downsample(columns(group), wanted, TimeRange(first, last + 1))
    found = lists(fill(down, wanted, wanted.make_grid(first, last)), len(group))
    for ours, theirs in zip(found, expected, strict=True):
        same(ours, theirs)


@settings(max_examples=200)
@given(
    groups,
    st.sampled_from(NAMES),
    st.sampled_from([None, "10s-avg", "30s-max", "10s-sum-nan", "20s-min-zero"]),
    st.sampled_from([None, RateOptions(), RateOptions(counter=True, drop_resets=True)]),
    st.integers(0, 250),
    st.integers(1, 300),
)
def test_a_whole_sub_query_is_what_the_slow_way_gives(group, name, text, rate, start, length):
    first, last = T0 + start * 1000, T0 + (start + length) * 1000
    wanted = parse(text, UTC, calendar=False) if text else None
    query = PointQuery(aggregator=name, downsample=wanted, rate=rate)
    # The margin is an hour at either end, so that the read covers all points.
    found = points(
        columns(group),
        query,
        SeriesGroups([0] * len(group)),
        TimeRange(first, last + 1),
        milliseconds=True,
        stepped=False,
    )
    slow, interval = group, 0
    if text:
        interval, function = int(text.split("s-")[0]) * 1000, text.split("-")[1]
        slow = [oracle.downsampled(one, interval, function) for one in slow]
    filling = bool(text and text.count("-") == 2)
    slow = oracle.taking_part(slow, first, last, fill=filling)
    if text and filling:
        value = 0.0 if text.endswith("zero") else None
        before = interval if rate and first >= interval else 0
        slow = [oracle.filled(one, interval, first - before, last, value) for one in slow]
    if rate:
        slow = [oracle.rated(one, rate.counter, drop_resets=rate.drop_resets) for one in slow]
        slow = [one for one in slow if one]
    expected = oracle.joined(slow, name, oracle.rule_of(name, rate=rate is not None, fill=filling))
    expected = [(time, value) for time, value in expected if first <= time <= last]
    if not expected:
        assert found == {}
    else:
        same(zip(*(part.tolist() for part in found[0]), strict=True), expected)


def table(*rows):
    return [[(T0 + at * 10_000, value) for at, value in enumerate(row) if value is not None] for row in rows]


def test_the_first_table_of_the_page_on_aggregators():
    group = table([5, 5, 10, 15, 20, 5], [10, 5, 20, 15, 10, 0])
    _, value = aggregate(columns(group), AGGREGATORS["sum"], Missing.LINEAR)
    assert value.tolist() == [15, 10, 30, 30, 30, 5]


def test_the_table_of_interpolation_by_its_formula():
    """The documentation's row of results contradicts its formula; the expected values follow the formula."""
    group = table([None, 5, None, 15, None, 5, None], [10, None, 20, None, 10, None, 20])
    time, value = aggregate(columns(group), AGGREGATORS["sum"], Missing.LINEAR)
    assert ((time - T0) // 10_000).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert value.tolist() == [10, 20, 30, 30, 20, 20, 20]


def test_the_table_of_the_page_on_downsampling():
    group = table([5, 5, 10, 15, 20, 5, 1], [10, 5, 20, 15, 10, 0, 5])
    wanted = parse("30s-sum", UTC, calendar=False)
    down = downsample(columns(group), wanted, TimeRange(T0, T0 + 70_000))
    assert down.value.tolist() == [20, 40, 1, 35, 25, 5]
    time, value = aggregate(down, AGGREGATORS["sum"], Missing.LINEAR)
    assert ((time - T0) // 1000).tolist() == [0, 30, 60]
    assert value.tolist() == [55, 65, 6]


def test_the_table_of_fill_policies():
    group = table([None, None, None, 15, None, 5, None], [10, None, 20, None, None, None, 20])
    query = PointQuery(aggregator="sum", downsample=parse("10s-sum-nan", UTC, calendar=False))
    span = TimeRange(T0, T0 + 60_001)
    _, value = points(columns(group), query, SeriesGroups([0, 0]), span, milliseconds=False, stepped=False)[0]
    expected = [10, None, 20, 15, None, 5, 20]
    assert [None if math.isnan(one) else one for one in value.tolist()] == expected


def test_a_counter_that_rolls_over_as_the_page_on_queries_has_it():
    group = [[(T0, 64_000.0), (T0 + 1000, 1_000.0)]]
    options = RateOptions(counter=True, counter_max=65_535)
    assert compute_rates(columns(group), options).value.tolist() == [2_535]
    assert compute_rates(columns(group), RateOptions()).value.tolist() == [-63_000]
    group = [[(T0, 2_000.0), (T0 + 1000, 500.0)]]
    assert compute_rates(columns(group), options).value.tolist() == [64_035]
    assert compute_rates(
        columns(group), RateOptions(counter=True, counter_max=65_535, reset_value=10_001)
    ).value.tolist() == [0]
    assert len(compute_rates(columns(group), RateOptions(counter=True, drop_resets=True))) == 0


def test_the_whole_range_in_one_point_is_named_by_its_start():
    group = [[(T0 + 1_000, 1.0), (T0 + 9_000, 5.0)]]
    for text in ("0all-sum", "all-sum"):
        down = downsample(columns(group), parse(text, UTC, calendar=False), TimeRange(T0 + 500, T0 + 10_000))
        assert (down.time.tolist(), down.value.tolist()) == ([T0 + 500], [6.0])


def test_the_whole_range_ends_before_its_end():
    wanted = parse("0all-sum", UTC, calendar=False)
    assert wanted.reach(T0, T0 + 10_000, 3_600_000) == (T0, T0 + 10_000)


@pytest.mark.parametrize(("policy", "filler"), [("zero", 0.0), ("nan", None), ("scalar#3", 3.0)])
def test_a_series_that_ended_before_the_range_has_no_filler(policy, filler):
    ended = [(T0 - 600_000, 100.0), (T0 - 60_000, 100.0)]
    lasting = [(T0 - 60_000, 5.0), (T0 + 10_000, 7.0)]
    wanted = parse(f"10s-sum-{policy}", UTC, calendar=False)
    span = TimeRange(T0, T0 + 20_001)

    def values_of(name, group):
        query = PointQuery(aggregator=name, downsample=wanted)
        found = points(columns(group), query, SeriesGroups([0] * len(group)), span, milliseconds=True, stepped=False)
        return {at: list(zip(*(part.tolist() for part in found[at]), strict=True)) for at in found}

    expected = [(T0, filler), (T0 + 10_000, 7.0), (T0 + 20_000, filler)]
    same(values_of("avg", [ended, lasting])[0], expected)
    same(values_of("count", [ended, lasting])[0], [(time, None if value is None else 1.0) for time, value in expected])
    assert values_of("avg", [ended]) == {}


def test_the_rate_before_stands_in_for_a_reset_that_was_dropped():
    falls = [(T0, 10.0), (T0 + 10_000, 30.0), (T0 + 20_000, 0.0), (T0 + 30_000, 40.0)]
    grows = [(T0 + at * 10_000, 10.0 * at) for at in range(4)]
    options = RateOptions(counter=True, drop_resets=True)
    for text in ("10s-last", "10s-last-nan", "10s-last-zero"):
        wanted = parse(text, UTC, calendar=False)
        query = PointQuery(aggregator="sum", downsample=wanted, rate=options)
        span = TimeRange(T0, T0 + 30_001)
        both = points(columns([falls, grows]), query, SeriesGroups([0, 0]), span, milliseconds=True, stepped=False)[0]
        assert both[1].tolist()[-3:] == [3.0, 3.0, 5.0], text
        alone = points(columns([falls]), query, SeriesGroups([0]), span, milliseconds=True, stepped=False)[0]
        assert (alone[0].tolist()[-2:], alone[1].tolist()[-2:]) == ([T0 + 10_000, T0 + 30_000], [2.0, 4.0]), text


def test_several_readings_in_a_second_become_one_unless_milliseconds_are_requested():
    group = [[(T0 + 100, 1.0), (T0 + 900, 3.0), (T0 + 1_000, 7.0)]]
    span = TimeRange(T0, T0 + 5_000)

    def values_of(name, milliseconds):
        query = PointQuery(aggregator=name)
        found = points(columns(group), query, SeriesGroups([0]), span, milliseconds=milliseconds, stepped=False)
        return [part.tolist() for part in found[0]]

    assert values_of("sum", True) == [[T0 + 100, T0 + 900, T0 + 1_000], [1, 3, 7]]
    assert values_of("sum", False) == [[T0, T0 + 1_000], [4, 7]]
    assert values_of("none", False) == [[T0, T0 + 1_000], [3, 7]]
    assert values_of("squareSum", False) == [[T0, T0 + 1_000], [4, 49]]


@pytest.mark.parametrize(
    "text",
    ["", "1m", "avg", "1m-", "-avg", "1m-nope", "1m-none", "1m-avg-", "1m-avg-nope", "1m-avg-scalar", "0m-avg",
     "1x-avg", "1.5m-avg", "-1m-avg", "99999999999999y-avg", "1m-avg-nan-zero", "1msc-avg", "0dc-sum"],
)  # fmt: skip
def test_a_wrong_downsample_is_refused(text):
    with pytest.raises(InvalidRequestError) as refused:
        parse(text, UTC, calendar=False)
    assert refused.value.field == "downsample"


def test_a_grid_has_its_limit():
    for text in ("1ms-sum-zero", "1sc-sum-zero"):
        with pytest.raises(LimitExceededError):
            parse(text, UTC, calendar=False).make_grid(0, 4_000_000_000_000)


def test_series_that_never_meet_are_not_joined_by_the_million():
    size = 1_200
    index = np.repeat(np.arange(size), 100)
    time = np.sort((np.arange(size * 100) * 7919) % (size * 100)).reshape(100, size).T.ravel()
    with pytest.raises(LimitExceededError):
        aggregate(SeriesColumns(index, time, np.ones(len(time))), AGGREGATORS["sum"], Missing.LINEAR)


def local(text, zone):
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("unit", "every", "starts"),
    [
        (Unit.DAY, 1, ["2026-03-28", "2026-03-29", "2026-03-30", "2026-03-31"]),
        (Unit.WEEK, 1, ["2026-03-22", "2026-03-29", "2026-04-05"]),
        (Unit.MONTH, 1, ["2026-03-01", "2026-04-01"]),
        (Unit.MONTH, 3, ["2026-01-01", "2026-04-01"]),
        (Unit.YEAR, 1, ["2026-01-01", "2027-01-01"]),
    ],
)
def test_intervals_of_a_calendar_follow_the_clocks_of_the_zone(unit, every, starts):
    """In this week Berlin's day of 29 March has 23 hours."""
    zone = ZoneInfo("Europe/Berlin")
    found = compute_edges(local("2026-03-28T12:00", zone), local("2026-03-30T12:00", zone), every, unit, zone)
    assert found.tolist() == [local(day, zone) for day in starts]


@given(
    st.integers(0, 4_000_000_000_000),
    st.integers(1, 400 * DAY),
    st.sampled_from(list(Unit)),
    st.one_of(st.integers(1, 30), st.integers(1, 10**12)),
    st.sampled_from(["UTC", "Asia/Kabul", "America/Los_Angeles"]),
)
@example(3_786_911_999_989, 1, Unit.YEAR, 22, "Asia/Kabul")
@example(0, 1, Unit.DAY, 10**12, "UTC")
def test_intervals_of_a_calendar_cover_the_range(start, length, unit, every, zone):
    end = min(start + length, 4_102_444_800_000)
    try:
        found = compute_edges(start, end, every, unit, ZoneInfo(zone))
    except LimitExceededError:
        assert unit is Unit.SECOND
        return
    assert found[0] <= start
    assert found[-1] >= end
    assert (np.diff(found) > 0).all()
    assert (found[1:-1] > start).all()
    assert (found[1:-1] < end).all()
