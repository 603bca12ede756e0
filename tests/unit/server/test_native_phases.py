"""Tests of the phases of a job over HTTP, against an expected course of events."""

import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples

from jobmeter.model.event import ALERT_FIRING, Event, EventSource
from jobmeter.model.time import MINUTE, SECOND

START = NOW - 120 * MINUTE
CREATED = START - 12 * MINUTE
PLACED = START - 3 * MINUTE
END = START + 100 * MINUTE
RESTART = (60, 64)
"""Minutes after the start during which no attempt runs."""
OWN = {"job": "train", "replica": "worker-0"}
SAVES = (30, 31)


def busy(minute):
    """Return the utilization: start-up of 5 minutes, checkpoint, failure, restart of 2 minutes, end after 96."""
    idle = minute < 5 or SAVES[0] <= minute < SAVES[1] or RESTART[0] <= minute < RESTART[1] + 2 or minute >= 96
    return 0.0 if idle else 0.95


def writes(minute):
    return 1e9 if SAVES[0] <= minute < SAVES[1] else 1e4


def times(interval):
    return [at for at in range(START, END, interval) if not RESTART[0] <= (at - START) / MINUTE < RESTART[1]]


def lines(interval, devices=2):
    for replica in ("worker-0", "worker-1"):
        where = {"job": "train", "replica": replica, "node": f"n-{replica}"}
        for attempt in (0, 1):
            own = [at for at in times(interval) if (at - START > RESTART[0] * MINUTE) == bool(attempt)]
            for device in range(devices):
                place = {**where, "device": f"gpu{device}", "attempt": str(attempt)}
                yield {"metric": "gpu.utilization", **place}, [(at, busy((at - START) / MINUTE)) for at in own]
            total, counter = 0.0, []
            for at in own:
                total += writes((at - START) / MINUTE) * interval / SECOND
                counter.append((at + interval, total))
            yield {"metric": "disk.write", **where, "attempt": str(attempt)}, counter


def fill(server, interval=10 * SECOND, **more):
    replicas = [
        {"name": f"worker-{rank}", "node": f"n-worker-{rank}", "attempt": attempt, "start": start, "end": end}
        for rank in (0, 1)
        for attempt, start, end in (
            (0, START, START + RESTART[0] * MINUTE),
            (1, START + RESTART[1] * MINUTE, END),
        )
    ]
    job = {"job_id": "train", "state": "Succeeded", "created": CREATED, "start": START, "end": END}
    events = [{"job": "train", "time": PLACED, "reason": "Scheduled", "message": "assigned to n1"}]
    body = {"jobs": [{**job, "replicas": replicas, **more}], "events": events}
    assert server.call("POST", "/jobs", body).status == 200
    assert server.ingest(samples(list(lines(interval)))).status == 200


def answered(server):
    answer = server.call("GET", "/jobs/train/phases")
    assert answer.status == 200, answer.body
    return answer.json()


@pytest.mark.parametrize("interval", [5 * SECOND, 15 * SECOND, MINUTE])
def test_every_phase_of_a_job_is_there_with_its_length(server, interval):
    fill(server, interval)
    body = answered(server)
    wanted = [
        ("queued", CREATED, PLACED, 0),
        ("prepare", PLACED, START, 0),
        ("start", START, START + 5 * MINUTE, 0),
        ("training", START + 5 * MINUTE, START + SAVES[0] * MINUTE, 0),
        ("checkpoint", START + SAVES[0] * MINUTE, START + SAVES[1] * MINUTE, 0),
        ("training", START + SAVES[1] * MINUTE, START + RESTART[0] * MINUTE, 0),
        ("restart", START + RESTART[0] * MINUTE, START + RESTART[1] * MINUTE, 0),
        ("start", START + RESTART[1] * MINUTE, START + (RESTART[1] + 2) * MINUTE, 1),
        ("training", START + (RESTART[1] + 2) * MINUTE, START + 96 * MINUTE, 1),
        ("end", START + 96 * MINUTE, END, 1),
    ]
    assert [(one["phase"], one["attempt"]) for one in body["spans"]] == [
        (name, attempt) for name, _, _, attempt in wanted
    ]
    for one, (name, start, end, _) in zip(body["spans"], wanted, strict=True):
        assert one["start"] == pytest.approx(start, abs=2 * interval), name
        assert one["end"] == pytest.approx(end, abs=2 * interval), name
    assert (body["start"], body["end"]) == (CREATED, END)
    assert sum(body["totals"].values()) == END - CREATED
    assert set(body["unknown"]) == {"first_step", "repeat"}


@pytest.mark.parametrize("source", [EventSource.JOB, EventSource.SERVER])
def test_the_text_of_an_alert_about_checkpoints_is_no_checkpoint(server, source):
    job = {"job_id": "train", "state": "Succeeded", "created": START, "start": START, "end": END}
    replica = {"name": "worker-0", "start": START, "end": END}
    assert server.call("POST", "/jobs", {"jobs": [{**job, "replicas": [replica]}]}).status == 200
    texts = ((START + MINUTE, "saving the checkpoint takes long"), (START + 3 * MINUTE, "the checkpoint is written"))
    events = [
        Event(time=time, project="default", job="train", source=source, reason=ALERT_FIRING, message=text)
        for time, text in texts
    ]
    server.application.services.registry.add_events(events)
    steps = [(START + at * MINUTE, 10.0 * at) for at in range(100)]
    assert server.ingest(samples([({"metric": "app.step", **OWN}, steps)])).status == 200
    totals = answered(server)["totals"]
    assert totals.get("checkpoint") == (None if source is EventSource.SERVER else 2 * MINUTE)


def test_reported_steps_show_the_first_one_and_those_that_are_repeated(server):
    """The second attempt starts with the step of the checkpoint, and makes new ones 30 minutes later."""
    fill(server)
    own = {"metric": "app.step", **OWN}
    first = [(START + (6 + at) * MINUTE, 10.0 * at) for at in range(1, 53)]
    again = [(START + (66 + at) * MINUTE, 220.0 + 10.0 * at) for at in range(30)]
    steps = [({**own, "attempt": "0"}, first), ({**own, "attempt": "1"}, again)]
    assert server.ingest(samples(steps)).status == 200
    body = answered(server)
    assert body["unknown"] == {}
    assert body["totals"]["first_step"] == pytest.approx(2 * MINUTE, abs=20 * SECOND)
    assert body["totals"]["repeat"] == pytest.approx(30 * MINUTE, abs=MINUTE)
