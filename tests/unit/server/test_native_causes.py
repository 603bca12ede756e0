"""Tests of the explanation of slower jobs, over HTTP, from samples of jobs that differ in known ways."""

import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples

from jobmeter.model.time import MINUTE, SECOND

START = NOW - 300 * MINUTE
STEP = 10 * SECOND
STARTS, WORKS = 10, 60
"""Minutes of a job without a fault: its start, and its work."""


def lines(job, waits=0.0, starts=STARTS):
    """Return samples of a job whose devices wait a share of the time for storage, and whose work is longer by that."""
    works = round(WORKS / (1 - waits))
    until = START + (starts + works) * MINUTE
    times = range(START, until, STEP)
    place = {"job": job, "replica": "worker-0", "node": "n1"}
    working = [at >= START + starts * MINUTE for at in times]
    busy = [(at, (1 - waits) * 0.97 if work else 0.0) for at, work in zip(times, working, strict=True)]
    clock = [(at, 1.8e9) for at in times]
    pressure, total = [], 0.0
    for at, work in zip(times, working, strict=True):
        pressure.append((at, total))
        total += (waits if work else 0.0) * STEP / SECOND
    yield {"metric": "gpu.utilization", "device": "gpu0", **place}, busy
    yield {"metric": "gpu.clock.sm", "device": "gpu0", **place}, clock
    yield {"metric": "pressure.io", **place}, pressure


def record(job, minutes, queued=5):
    times = {"created": START - queued * MINUTE, "start": START, "end": START + minutes * MINUTE}
    replica = {"name": "worker-0", "node": "n1", "devices": ["gpu0"], "start": times["start"], "end": times["end"]}
    return {"job_id": job, "state": "Succeeded", **times, "replicas": [replica]}


@pytest.fixture
def stored(server):
    jobs = [record("a", 70), record("waits", 10 + 120), record("starts", 40 + 60), record("queued", 70, queued=35)]
    assert server.call("POST", "/jobs", {"jobs": jobs}).status == 200
    series = [*lines("a"), *lines("waits", waits=0.5), *lines("starts", starts=40), *lines("queued")]
    assert server.ingest(samples(series)).status == 200
    return server


@pytest.mark.parametrize(
    ("job", "cause", "minutes"), [("waits", "input", 60), ("starts", "start", 30), ("queued", "queue", 30)]
)
def test_the_difference_is_explained_by_its_cause(stored, job, cause, minutes):
    answer = stored.call("GET", f"/compare/causes?job=a&job={job}")
    assert answer.status == 200, answer.body
    (found,) = answer.json()
    assert (found["a"], found["b"], found["labels"]) == ("a", job, ["A", "B"])
    assert found["difference_ms"] == minutes * MINUTE
    first = found["parts"][0]
    assert first["cause"] == cause
    assert first["b"] - first["a"] == pytest.approx(minutes * MINUTE, rel=0.06)
    assert sum(part["b"] - part["a"] for part in found["parts"]) == found["difference_ms"]
    assert sum(part["a"] for part in found["parts"]) == found["a_ms"] == 75 * MINUTE
    assert found["sentence"].startswith("B took ")


def test_each_further_job_is_compared_with_the_first_and_has_its_letter(stored):
    found = stored.call("GET", "/compare/causes?job=a,waits,queued").json()
    assert [(one["b"], one["labels"]) for one in found] == [("waits", ["A", "B"]), ("queued", ["A", "C"])]
    assert found[1]["sentence"].startswith("C took 30 min longer than A: 30 min of it queue")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?job=a", 400),
        ("?job=a&job=none", 404),
        ("?job=" + ",".join(f"j{at}" for at in range(11)), 400),
    ],
)
def test_what_cannot_be_compared_is_refused(stored, query, status):
    assert stored.call("GET", f"/compare/causes{query}").status == status


def test_jobs_that_nobody_measured_are_compared_by_their_records(server):
    jobs = [record("a", 70), record("b", 90, queued=15)]
    assert server.call("POST", "/jobs", {"jobs": jobs}).status == 200
    (found,) = server.call("GET", "/compare/causes?job=a&job=b").json()
    assert found["difference_ms"] == 30 * MINUTE
    assert {part["cause"]: part["b"] - part["a"] for part in found["parts"]} == {
        "unattributed": 20 * MINUTE,
        "queue": 10 * MINUTE,
    }
    assert "start" in found["unknown"]
