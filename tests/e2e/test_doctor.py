"""Tests of ``jobmeter doctor`` as a process, beside a real server."""

import json

from jobmeter.collect.accelerators.registry import VENDORS
from tests.e2e.conftest import start

NAMES = {
    "rights": ["capabilities", "processes"],
    "kernel": ["cgroups", "pressure", "log", "journal", "perf", "rapl", "ipmi", "events"],
    "devices": [vendor.name for vendor in VENDORS],
    "schedulers": ["slurm", "kubernetes", "flink"],
    "delivery": ["server", "stored", "key", "clock", "spool", "disk"],
}


def checks(report):
    return {row["name"]: row for row in json.loads(report.out)}


def test_a_server_that_takes_what_is_measured(jobmeter, tmp_path):
    report = jobmeter("doctor", "--json", "--spool", str(tmp_path / "spool"))
    rows = json.loads(report.out)
    assert {area: [row["name"] for row in rows if row["area"] == area] for area in NAMES} == NAMES
    found = checks(report)
    assert [found[name]["status"] for name in ("server", "key", "clock", "spool", "disk")] == ["ok"] * 5
    assert report.status == int(any(row["status"] == "problem" for row in rows))
    assert all(row["text"] for row in rows)


def test_a_wrong_key_and_a_server_that_is_away_are_status_1(reach, tmp_path):
    api, _ = reach
    wrong = start(
        "doctor", "--json", JOBMETER_SERVER=api.transport.server, JOBMETER_KEY="x", JOBMETER_DATA=str(tmp_path)
    )
    assert (wrong.status, checks(wrong)["key"]["status"]) == (1, "problem")
    away = start("doctor", JOBMETER_SERVER="http://127.0.0.1:9", JOBMETER_KEY="x", JOBMETER_DATA=str(tmp_path))
    assert away.status == 1
    assert "problem  server       no answer from http://127.0.0.1:9" in away.out
    assert "→ see its address" in away.out
    assert list(tmp_path.iterdir()) == [], "it changes nothing"


def test_doctor_without_a_server_starts_none(tmp_path):
    report = start("doctor", "--json", JOBMETER_DATA=str(tmp_path), JOBMETER_SERVER="", JOBMETER_KEY="")
    assert checks(report)["server"]["status"] == "absent"
    assert list(tmp_path.iterdir()) == []
