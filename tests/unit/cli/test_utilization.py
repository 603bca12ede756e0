"""Tests of ``jobmeter utilization``."""

import csv
import io
import json

import pytest

DAY = 86_400_000
START = 20_000 * DAY


def bucket(day, allocated, idle=None, **more):
    used = None if idle is None else allocated - idle
    return {"start": START + day * DAY, "allocated": allocated, "used": used, "idle": idle, "unpriced": 0.0, **more}


def group(name, *buckets, cost=None):
    idle = [one["idle"] for one in buckets if one["idle"] is not None]
    total = bucket(0, sum(one["allocated"] for one in buckets), sum(idle) if idle else None, cost=cost)
    return {"name": name, "jobs": 2, "total": total, "buckets": list(buckets)}


ANSWER = {
    "start": START,
    "end": START + 2 * DAY,
    "every": DAY,
    "by": "user",
    "currency": "CNY",
    "groups": [
        group("lin", bucket(0, 7200.0, 3600.0, cost=2.5), bucket(1, 36_000.0, 0.0, cost=None), cost=2.5),
        group("", bucket(0, 3600.0, unpriced=1800.0), bucket(1, 0.0)),
    ],
    "others": group("", bucket(0, 1800.0), bucket(1, 0.0)),
    "combined": 3,
}


def shown(run, *options):
    return " ".join(run("utilization", *options).stdout.split())


def test_the_hours_of_each_group_are_shown_with_their_cost(server, run):
    server.on("/devices/hours", ANSWER)
    text = shown(run, "--by", "user", "--since", "2d", "--project", "lab")
    assert "device hours from 2024-10-04 00:00:00 to 2024-10-06 00:00:00 UTC" in text
    assert "lin 2 12.00 11.00 1.00 2.50 CNY" in text
    assert "- 2 1.00 - - -" in text
    assert "3 users with fewer idle hours are summed as others" in text
    asked = {name: values[0] for name, values in server.asked[-1].parameters.items()}
    assert asked == {"by": "user", "since": "2d", "project": "lab"}


def test_each_day_is_shown_where_devices_were_allocated(server, run):
    server.on("/devices/hours", ANSWER)
    text = shown(run, "--by", "user", "--every", "1d")
    assert "lin 2024-10-04 2.00 1.00 1.00 2.50 CNY" in text
    assert "lin 2024-10-05 10.00 10.00 0.00 -" in text
    assert text.count("2024-10-05 ") == 1
    assert server.asked[-1].parameters["every"] == ["1d"]


def test_csv_has_a_line_for_each_group_or_each_of_its_days_and_json_is_the_answer(server, run):
    server.on("/devices/hours", ANSWER)
    rows = list(csv.DictReader(io.StringIO(run("utilization", "--format", "csv").stdout)))
    assert [(row["user"], row["allocated"], row["idle"]) for row in rows] == [
        ("lin", "43200.0", "3600.0"),
        ("", "3600.0", ""),
        ("3 others", "1800.0", ""),
    ]
    assert len(list(csv.DictReader(io.StringIO(run("utilization", "--every", "1d", "--format", "csv").stdout)))) == 6
    assert json.loads(run("utilization", "--json").stdout)["groups"][0]["name"] == "lin"


def test_the_output_says_when_no_job_had_devices(server, run):
    server.on("/devices/hours", {**ANSWER, "groups": [], "others": None, "combined": 0})
    assert "no job had devices in this range" in shown(run)


@pytest.mark.parametrize(
    "options", [["--every", "5m"], ["--since", "x"], ["--by", "node"], ["--json", "--format", "csv"]]
)
def test_invalid_options_are_refused_without_a_request(server, run, options):
    assert run("utilization", *options).exit_code == 2
    assert not server.asked
