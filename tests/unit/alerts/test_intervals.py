"""Tests of time intervals of routes."""

import calendar

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.alerts.test_notify import CONFIG, SECOND, alert, config, step

from jobmeter.alerts.intervals import read_intervals
from jobmeter.alerts.yaml_file import load_text
from jobmeter.errors import ConfigurationError
from jobmeter.model.alert import AlertState, NotificationGroup
from jobmeter.model.time import HOUR

TUESDAY = round(pd.Timestamp("2026-02-24 10:00", tz="UTC").timestamp() * 1000)
ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu"]


def interval(text):
    file = load_text("alerts.yml", f"[{{name: n, time_intervals: [{{{text}}}]}}]".encode())
    ((_, (found,)),) = read_intervals(file.read_items())
    return found


def members(low, high):
    """Draw a range whose two ends can be equal."""
    return st.lists(st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted).map(tuple), max_size=3)


@given(
    times=st.lists(
        st.lists(st.integers(0, 1440), min_size=2, max_size=2, unique=True).map(sorted).map(tuple), max_size=2
    ),
    weekdays=members(0, 6),
    days=st.one_of(
        members(1, 31),
        members(-31, -1),
        st.lists(st.tuples(st.integers(1, 15), st.integers(-16, -1)), max_size=3),
    ),
    months=members(1, 12),
    years=members(2024, 2029),
    zone=st.sampled_from(ZONES),
    at=st.integers(1_704_067_200, 1_893_456_000),
    named=st.booleans(),
)
def test_a_time_is_in_an_interval_if_it_is_in_each_list(times, weekdays, days, months, years, zone, at, named):
    day_names = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
    month_names = [name.lower() if named else str(number) for number, name in enumerate(calendar.month_name)]
    texts = {
        "weekdays": [f"{day_names[first]}:{day_names[last].title()}" for first, last in weekdays],
        "days_of_month": [f"{first}:{last}" if first != last else str(first) for first, last in days],
        "months": [f"{month_names[first]}:{month_names[last]}" for first, last in months],
        "years": [f"{first}:{last}" for first, last in years],
    }
    fields = [f"{name}: [{', '.join(repr(one) for one in given)}]" for name, given in texts.items() if given]
    spans = [f"{{start_time: '{a // 60:02}:{a % 60:02}', end_time: '{b // 60:02}:{b % 60:02}'}}" for a, b in times]
    fields += [f"times: [{', '.join(spans)}]"] if spans else []
    found = interval(", ".join([*fields, f"location: {zone}"]))

    local = pd.Timestamp(at, unit="s", tz="UTC").tz_convert(zone)
    day_from_end = local.day - local.days_in_month - 1

    def is_day(first, last):
        return first <= (local.day if first > 0 else day_from_end) and (local.day if last > 0 else day_from_end) <= last

    expected = (
        (not times or any(a <= local.hour * 60 + local.minute < b for a, b in times))
        and (not weekdays or any(local.strftime("%A").lower() in day_names[a : b + 1] for a, b in weekdays))
        and (not days or any(is_day(a, b) for a, b in days))
        and (not months or any(a <= local.month <= b for a, b in months))
        and (not years or any(a <= local.year <= b for a, b in years))
    )
    assert found.contains(at * SECOND) is expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("weekdays: ['monday:sunday']", "the end comes before the start"),
        ("weekdays: ['1:5']", "'1' is not one of sunday, monday"),
        ("days_of_month: ['0']", "'0' is not 1 to 31"),
        ("days_of_month: ['-3:2']", "the start from its end; write two ranges"),
        ("days_of_month: ['10:-25']", "the end comes before the start"),
        ("days_of_month: ['1:2:3']", "VALUE or START:END"),
        ("months: ['13']", "'13' is not 1 to 12"),
        ("years: ['twenty']", "'twenty' is not 1 to 9999"),
        ("times: [{start_time: '9:00', end_time: '10:00'}]", "HH:MM"),
        ("times: [{start_time: '22:00', end_time: '06:00'}]", "over midnight as two"),
        ("times: [{start_time: '22:00'}]", "end_time are needed"),
        ("location: Mars/Base", "'Mars/Base' is not a time zone"),
        ("hours: ['1']", "known are times, weekdays"),
    ],
)
def test_wrong_intervals_are_refused(text, problem):
    with pytest.raises(ConfigurationError) as refused:
        interval(text)
    assert problem in str(refused.value)
    assert str(refused.value).startswith("alerts.yml:1:")


WORK = """
time_intervals:
  - name: work
    time_intervals: [{weekdays: ['monday:friday'], times: [{start_time: '09:00', end_time: '17:00'}]}]
"""


def routed(field, name="work"):
    return config(CONFIG.replace("      continue: true", f"      continue: true\n      {field}: [{name}]") + WORK)


@pytest.mark.parametrize(("field", "is_muted"), [("mute_time_intervals", True), ("active_time_intervals", False)])
def test_a_route_is_muted_in_intervals_or_outside_of_them(field, is_muted):
    found = routed(field)
    groups: dict[str, NotificationGroup] = {}
    owners = [alert(at=TUESDAY, job_id="j")]
    at_work = [name for name, _ in step(found, owners, groups, TUESDAY + 20 * SECOND)]
    assert ("owner/owner/0" in at_work) is not is_muted
    night = [name for name, _ in step(found, owners, groups, TUESDAY + 8 * HOUR)]
    assert ("owner/owner/0" in night) is is_muted, "what waited is sent afterwards, the rest was sent before"


def test_an_alert_that_ends_while_its_route_is_muted_is_never_sent():
    found = routed("mute_time_intervals")
    groups: dict[str, NotificationGroup] = {}
    ended = [alert(state=AlertState.RESOLVED, at=TUESDAY + HOUR, job_id="j")]
    step(found, [alert(at=TUESDAY, job_id="j")], groups, TUESDAY + 20 * SECOND)
    names = [name for name, _ in step(found, ended, groups, TUESDAY + 8 * HOUR)]
    assert "owner/owner/0" not in names


def test_undefined_intervals_and_those_of_the_first_route_are_refused():
    with pytest.raises(ConfigurationError, match="'rest' is not defined; defined are work"):
        routed("mute_time_intervals", "rest")
    first = CONFIG.replace("  group_by: [alertname]", "  group_by: [alertname]\n  active_time_intervals: [work]")
    with pytest.raises(ConfigurationError, match="the first route is for every alert"):
        config(first + WORK)
    older = WORK.replace("time_intervals:\n", "mute_time_intervals:\n", 1)
    assert config(CONFIG + older).route is not None
