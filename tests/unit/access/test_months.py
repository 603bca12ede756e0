"""Tests of months in time zones, against a search over single moments."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.access.months import Calendar
from jobmeter.errors import ConfigurationError, InvalidRequestError

ZONES = sorted(available_timezones() - {"localtime"})
MOMENTS = st.integers(32 * 24 * 3_600_000, int(datetime(2090, 1, 1, tzinfo=UTC).timestamp() * 1000))
HOUR = 3_600_000


@given(zone=st.sampled_from(ZONES), time_ms=MOMENTS)
@example(zone="Asia/Shanghai", time_ms=1_793_462_400_000)
@example(zone="Africa/Cairo", time_ms=1_414_789_200_000)
def test_every_moment_lies_in_one_month_and_months_join(zone: str, time_ms: int) -> None:
    calendar = Calendar(zone)
    month = calendar.find_month(time_ms)
    assert time_ms in month
    assert calendar.parse_month(month.name) == month
    assert calendar.find_month(month.end_ms).start_ms == month.end_ms
    assert calendar.find_month(month.end_ms - 1) == month
    assert 27 * 24 * HOUR <= month.end_ms - month.start_ms <= 32 * 24 * HOUR


@given(zone=st.sampled_from(ZONES), time_ms=MOMENTS)
def test_a_moment_away_from_midnight_lies_in_the_month_that_clocks_show(zone: str, time_ms: int) -> None:
    shown = {
        datetime.fromtimestamp((time_ms + hours * HOUR) / 1000, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m")
        for hours in (-26, 0, 26)
    }
    if len(shown) == 1:
        assert {Calendar(zone).find_month(time_ms).name} == shown


def test_the_month_of_shanghai_begins_eight_hours_before_that_of_utc() -> None:
    first = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1000)
    assert Calendar("UTC").parse_month("2026-11").start_ms == first
    shanghai = Calendar("Asia/Shanghai")
    assert shanghai.parse_month("2026-11").start_ms == first - 8 * HOUR
    assert shanghai.find_month(first - 8 * HOUR).name == "2026-11"
    assert shanghai.find_month(first - 8 * HOUR - 1).name == "2026-10"


WRONG = ("", "2026", "2026-13", "2026-00", "26-11", "2026-1", "2026-11-01", "9999-01", "\u0662\u0660\u0662\u0666-11")


@pytest.mark.parametrize("name", [*WRONG, "1969-12"])
def test_a_month_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Calendar("UTC").parse_month(name)
    assert refused.value.field == "month"


@pytest.mark.parametrize("zone", ["", "Shanghai", "../etc/passwd", "/etc/passwd", "Asia", "x" * 300])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="usage_zone"):
        Calendar(zone)
