"""Tests of times, durations and ranges: written values are read back, and everything else is refused."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import (
    DAY,
    HOUR,
    MAX_TIME_MS,
    MINUTE,
    SECOND,
    SystemClock,
    TimeRange,
    ceil_to,
    floor_to,
    format_iso,
    parse_duration,
    parse_time,
)

moments = st.integers(0, MAX_TIME_MS)
steps = st.integers(1, 400 * DAY)


@given(moments, steps)
def test_a_time_lies_in_its_epoch_aligned_step(time, step):
    start = floor_to(time, step)
    assert start % step == 0
    assert start <= time < start + step
    assert ceil_to(time, step) == (time if time == start else start + step)


@given(moments)
def test_iso_is_read_back(time):
    assert parse_time(format_iso(time)) == time
    assert parse_time(str(time)) == parse_time(time) == time


@given(moments, st.integers(-23, 23))
def test_a_zone_moves_the_clock_not_the_moment(time, hours):
    zone = timezone(timedelta(hours=hours))
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)).astimezone(zone).isoformat()
    assert parse_time(text) == time


@given(st.text(max_size=30) | st.integers())
def test_what_is_no_time_is_refused_by_field(value):
    try:
        assert 0 <= parse_time(value, "start") <= MAX_TIME_MS
    except InvalidRequestError as error:
        assert error.field == "start"  # noqa: PT017  # both outcomes are right, each in its own way


@pytest.mark.parametrize("text", ["-1", "4102444800001", "1969-12-31T23:59:59Z", "2100-01-02", "now", "", "1e9", "nan"])
def test_times_out_of_this_world(text):
    with pytest.raises(InvalidRequestError):
        parse_time(text)


@given(st.integers(1, 10_000), st.sampled_from([("ms", 1), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY)]))
def test_durations_count_their_units(number, unit):
    assert parse_duration(f"{number}{unit[0]}") == number * unit[1]


@pytest.mark.parametrize(
    ("text", "bare", "expected"),
    [("1h30m", "", 90 * MINUTE), ("1.5h", "", 90 * MINUTE), ("5", "m", 5 * MINUTE), (" 2w ", "", 14 * DAY)],
)
def test_durations(text, bare, expected):
    assert parse_duration(text, bare_unit=bare) == expected


@pytest.mark.parametrize("text", ["", "5", "0s", "-5m", "5 m", "m", "1y", "0.1ms", "999999999d", "5m!", "1e3s"])
def test_what_is_no_duration_is_refused_by_field(text):
    with pytest.raises(InvalidRequestError) as caught:
        parse_duration(text, "step")
    assert caught.value.field == "step"


@given(moments, moments, moments, moments)
def test_ranges_meet_where_both_hold(a, b, c, d):
    one, other = TimeRange(min(a, b), max(a, b)), TimeRange(min(c, d), max(c, d))
    both = one.intersect(other)
    assert both == other.intersect(one)
    low, high = max(one.start_ms, other.start_ms), min(one.end_ms, other.end_ms)
    assert both == (TimeRange(low, high) if low < high else None)


@pytest.mark.parametrize(("start", "end", "field"), [(-1, 5, "start"), (0, MAX_TIME_MS + 1, "end"), (6, 5, "end")])
def test_ranges_that_cannot_be(start, end, field):
    with pytest.raises(InvalidRequestError) as caught:
        TimeRange(start, end)
    assert caught.value.field == field


def test_an_empty_range_is_legal():
    assert TimeRange(5, 5).length_ms == 0


def test_the_system_clock_gives_now():
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < MAX_TIME_MS
    assert clock.monotonic() <= clock.monotonic()
