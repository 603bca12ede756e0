"""Tests of the completeness of a job's data through our own API: the agents' own figures, and their visibility."""

import numpy as np
import pytest
from tests.support.fakes import NOW
from tests.support.frames import row, samples

from jobmeter.access.principal import Scope
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange
from jobmeter.query.quality import QualityQuestion
from jobmeter.query.request import JobRef
from jobmeter.store.damage import DamagedPart

EVERY = 10 * SECOND
START = NOW - HOUR
AWAY = (START + 10 * MINUTE, START + 20 * MINUTE)


def points(gone=(), value=lambda time: 1.0, every=EVERY):
    return [(time, float(value(time))) for time in range(START, NOW, every) if not any(a < time < b for a, b in gone)]


def agent(metric, node="n1", labels=(), **more):
    return Series(metric, project="", node=node, labels=labels), points(**more)


def replica(name, node="n1", **more):
    return row("memory.usage", points(**more), "j1", name, node=node)


@pytest.fixture
def job(server):
    """Record two replicas of a job on two nodes."""
    replicas = [{"name": f"worker-{at}", "node": f"n{at}", "start": START} for at in (1, 2)]
    record = {"job_id": "j1", "state": "Running", "start": START, "replicas": replicas}
    nodes = [{"name": "n1"}, {"name": "n2"}]
    assert server.call("POST", "/jobs", {"jobs": [record], "nodes": nodes}).status == 200
    return server


def quality(server, rows, **more):
    assert server.ingest(samples(rows)).status == 200
    answer = server.call("GET", "/jobs/j1/quality", **more)
    assert answer.status == 200
    return answer.json()


def test_a_job_of_which_nothing_is_missing_is_complete_and_nothing_is_said(job):
    found = quality(job, [replica("worker-1"), replica("worker-2", "n2"), agent("agent.samples", value=lambda t: t)])
    assert (found["complete"], found["coverage"], found["gaps"], found["sentences"]) == (True, 1.0, [], [])
    assert [(one["replica"], one["interval"], one["samples"]) for one in found["replicas"]] == [
        ("worker-1", EVERY, 360),
        ("worker-2", EVERY, 360),
    ]
    [node] = found["nodes"]
    assert (node["node"], node["away"], node["late"], node["dropped"]) == ("n1", [], [], {})


def test_a_gap_says_that_the_agent_was_away_and_which_replica_it_is_of(job):
    gone = {"gone": [AWAY]}
    found = quality(job, [replica("worker-1", **gone), replica("worker-2", "n2"), agent("agent.samples", **gone)])
    [gap] = found["gaps"]
    assert (gap["replica"], gap["start"], gap["end"], gap["missing"]) == ("worker-1", *AWAY, 59)
    assert (gap["exact"], gap["agent_away"]) == (True, True)
    assert found["nodes"][0]["away"] == [{"start": AWAY[0], "end": AWAY[1]}]
    assert found["complete"] is False
    assert found["coverage"] == pytest.approx(1 - 590 / 7200, abs=1e-3)
    [sentence] = found["sentences"]
    assert sentence.startswith("no samples of worker-1 for 10.0 min from ")
    assert sentence.endswith("while the agent of n1 was away")


def test_a_replica_that_ran_without_a_sample_is_named(job):
    found = quality(job, [replica("worker-1")])
    assert found["sentences"] == ["no samples of worker-2"]
    assert found["complete"] is False
    assert [one["samples"] for one in found["replicas"]] == [360, 0]


def test_what_agents_gave_up_what_waited_and_clocks_are_reported(job):
    from_then = START + 30 * MINUTE
    rows = [
        replica("worker-1"),
        replica("worker-2", "n2"),
        agent("agent.dropped", labels=(("reason", "spool.full"),), value=lambda time: 7 * (time >= from_then)),
        agent("agent.spool.damaged", value=lambda time: 100 * (time >= from_then)),
        agent("agent.spool.size", value=lambda time: 5000 * (from_then <= time <= from_then + 5 * MINUTE)),
        agent("agent.clock.offset", value=lambda time: -120 * (time == from_then)),
    ]
    found = quality(job, rows)
    [node] = found["nodes"]
    assert (node["dropped"], node["damaged_bytes"], node["clock_offset"]) == ({"spool.full": 7}, 100, -120.0)
    assert node["late"] == [{"start": from_then, "end": from_then + 5 * MINUTE}]
    assert found["sentences"][0] == "the agent of n1 dropped 7 samples (spool.full)"
    assert found["sentences"][1] == "the agent of n1 could not read back 100 bytes of data that waited on disk"
    assert found["sentences"][2] == "the clock of n1 was 120.0 s behind the time of its samples"
    assert found["sentences"][3].startswith("samples of n1 came late: they waited on its disk for 5.0 min from ")
    assert found["complete"] is False
    assert found["coverage"] == 1.0


def test_what_an_agent_did_outside_of_the_job_is_none_of_its(job):
    refused = Series("agent.dropped", project="", node="n1", labels=(("reason", "refused"),))
    before = (refused, [(START - HOUR, 0.0), (START - MINUTE, 5.0), (NOW - 1, 5.0)])
    found = quality(job, [replica("worker-1"), replica("worker-2", "n2"), before])
    assert found["nodes"][0]["dropped"] == {}
    assert found["complete"] is True


def test_other_metrics_judge_where_there_are_no_usual_ones_and_reports_of_programs_never(job):
    rows = [
        row("flink.watermarkLatency", points(gone=[AWAY]), "j1", "worker-1"),
        row("app.loss", [(START, 1.0), (NOW - SECOND, 1.0)], "j1", "worker-2"),
    ]
    found = quality(job, rows)
    assert [(one["replica"], one["metric"]) for one in found["replicas"]] == [
        ("worker-1", "flink.watermarkLatency"),
        ("worker-2", ""),
    ]
    assert found["gap_count"] == 1


def test_a_job_without_samples_claims_nothing(job):
    found = job.call("GET", "/jobs/j1/quality").json()
    assert (found["complete"], found["coverage"], found["replicas"], found["sentences"]) == (None, None, [], [])
    assert job.call("GET", "/jobs/nobody/quality").status == 404


def test_a_reader_of_the_job_alone_sees_its_gaps_and_no_nodes(job):
    gone = {"gone": [AWAY]}
    rows = [replica("worker-1", **gone), replica("worker-2", "n2"), agent("agent.samples", **gone)]
    assert job.ingest(samples(rows)).status == 200
    found = job.application.services.executor.run(QualityQuestion(JobRef("j1")), Scope(frozenset({"default"}), "j1"))
    assert found.nodes is None
    assert [(gap.start, gap.agent_away) for gap in found.gaps] == [(AWAY[0], False)]


def test_a_key_whose_policies_allow_the_job_sees_it_without_nodes_and_another_one_nothing(job):
    assert job.ingest(samples([replica("worker-1"), agent("agent.samples")])).status == 200
    answers = []
    for resource in ("job/j1", "job/j2"):
        allow = {"Effect": "Allow", "Action": "jobmeter:*", "Resource": f"acs:*:*:*:{resource}"}
        policy = {"name": "own", "document": {"Version": "1", "Statement": [allow]}}
        token = job.call("POST", "/keys", {"name": "k", "policies": [policy]}).json()["token"]
        answers.append(job.call("GET", "/jobs/j1/quality", headers={"Authorization": f"Bearer {token}"}))
    assert [answer.status for answer in answers] == [200, 404]
    assert answers[0].json()["nodes"] is None


def test_a_damaged_part_that_may_hold_its_samples_is_named(job, monkeypatch):
    inside, outside = TimeRange(START, NOW), TimeRange(NOW - 9 * DAY, NOW - 8 * DAY)
    parts = [
        DamagedPart(table="samples", name="a", reason="broken-on-start", rows=10, span=inside, place="/secret"),
        DamagedPart(table="samples", name="b", reason="broken-on-start", span=outside),
        DamagedPart(table="logs", name="c", reason="broken-on-start", span=inside),
        DamagedPart(table="samples", name="d", reason="broken-on-start", span=inside, jobs=(0, 0)),
    ]
    monkeypatch.setattr(job.application.services.store, "list_damaged", lambda: parts)
    found = quality(job, [replica("worker-1"), replica("worker-2", "n2")])
    assert [(one["part"], one["rows"]) for one in found["damaged"]] == [("a", 10)]
    assert found["sentences"] == ["a part of the store that may have samples of the job cannot be read"]
    assert found["complete"] is False
    assert "/secret" not in str(found)


def test_many_gaps_are_counted_and_the_longest_are_listed(job):
    gone = [(START + at * 2 * MINUTE, START + at * 2 * MINUTE + MINUTE) for at in range(10)]
    longest = (START + 30 * MINUTE, START + 40 * MINUTE)
    found = quality(job, [replica("worker-1", gone=[*gone, longest]), replica("worker-2", "n2")])
    assert found["gap_count"] == 11
    assert np.diff([gap["start"] for gap in found["gaps"]]).min() > 0
    [sentence] = found["sentences"]
    assert sentence.startswith("11 gaps in 1 of 2 replicas, ")
    assert "the longest: no samples of worker-1 for 10.0 min" in sentence
