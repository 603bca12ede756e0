"""Tests of the comparison of jobs aligned at their start, with pandas as the oracle of their courses."""

import pandas as pd
import pytest
from tests.support.fakes import NOW
from tests.support.frames import records, samples

STARTS = {"a": NOW - 7_200_000 + 7_000, "b": NOW - 3_600_000}
LENGTHS = {"a": 600, "b": 1200}


def readings(job):
    return [(STARTS[job] + 1000 * at, float(at % 50) + (10 if job == "b" else 0)) for at in range(LENGTHS[job])]


@pytest.fixture
def stored(server):
    jobs = [
        {"job_id": job, "state": "Succeeded", "start": STARTS[job], "end": STARTS[job] + LENGTHS[job] * 1000}
        for job in STARTS
    ]
    series = [({"metric": "cpu.usage", "job": job, "replica": "worker-0"}, readings(job)) for job in STARTS]
    assert server.ingest(records({"jobs": jobs}) + samples(series)).status == 200
    return server


def test_jobs_come_in_the_order_in_which_they_were_named_with_what_they_used(stored):
    reply = stored.call("GET", "/compare?job=b,a").json()
    assert [one["job"]["id"] for one in reply["jobs"]] == ["b", "a"]
    assert [one["summary"]["duration_ms"] for one in reply["jobs"]] == [1_200_000, 600_000]
    assert reply["lines"] == []
    (metric,) = reply["jobs"][1]["summary"]["metrics"]
    assert metric["job_max"] == 49.0


@pytest.mark.parametrize("step", [10, 60])
def test_courses_begin_in_the_step_of_the_start(stored, step):
    reply = stored.call("GET", f"/compare?job=a&job=b&metric=cpu.usage&step={step}s").json()
    assert reply["step"] == step * 1000
    for line in reply["lines"]:
        frame = pd.DataFrame(readings(line["job"]), columns=["time", "value"])
        expected = frame.groupby(frame["time"] // reply["step"]).value.mean()
        first = STARTS[line["job"]] // reply["step"]
        assert dict(map(tuple, line["points"])) == pytest.approx(
            {(at - first) * reply["step"]: value for at, value in expected.items()}
        )
        assert line["points"][0][0] == 0
    assert {line["job"] for line in reply["lines"]} == {"a", "b"}


def test_settings_and_findings_of_each_job_are_in_the_answer(stored):
    jobs = [{"job_id": "a", "command": "train --lr 1", "labels": {"seed": "1"}}, {"job_id": "b", "command": "train"}]
    finding = {"job": "b", "reason": "Finding", "level": "error", "time": NOW, "message": "xid (job b): XID 79"}
    assert stored.ingest(records({"jobs": jobs, "events": [finding]})).status == 200
    reply = stored.call("GET", "/compare?job=b&job=a").json()
    assert reply["settings"] == [
        {"name": "project", "texts": ["default", "default"], "equal": True},
        {"name": "command", "texts": ["train", "train --lr 1"], "equal": False},
        {"name": "label seed", "texts": ["", "1"], "equal": False},
    ]
    assert [one["findings"] and one["findings"]["rules"] for one in reply["jobs"]] == [["xid"], None]


def test_per_device_a_line_is_the_mean_of_the_devices(server):
    series = [
        ({"metric": "gpu.power", "job": "c", "replica": "w", "device": f"gpu{at}"}, [(NOW - 60_000, 100.0 + at)])
        for at in range(4)
    ]
    assert server.ingest(samples(series)).status == 200
    for per, value in (("job", 406.0), ("device", 101.5)):
        (line,) = server.call("GET", f"/compare?job=c&metric=gpu.power&per={per}").json()["lines"]
        assert [one[1] for one in line["points"]] == [pytest.approx(value)]
    assert server.call("GET", "/compare?job=c&per=node").status == 400


def test_the_step_suits_the_longest(stored):
    step = stored.call("GET", "/compare?job=a&job=b&metric=cpu.usage").json()["step"]
    assert step == stored.call("GET", "/compare?job=b&metric=cpu.usage").json()["step"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?job=a&job=none", 404),
        ("?job=a&metric=none", 400),
        ("?" + "&".join(f"job=j{n}" for n in range(11)), 400),
    ],
)
def test_what_cannot_be_compared_is_refused(stored, query, status):
    assert stored.call("GET", f"/compare{query}").status == status


def test_a_key_of_another_project_compares_nothing(stored):
    assert stored.call("GET", "/compare?job=a&job=b", key=stored.key("reader", "other")).status == 404
