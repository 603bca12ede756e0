"""Tests of requests for the evidence of a job's ranks: permissions, answers, limits and results."""

import pytest
from tests.support.frames import records
from tests.support.serving import serving

from jobmeter.access.share import issue
from jobmeter.model.event import STACK_EVIDENCE
from jobmeter.model.stacks import LONGEST_TEXT
from jobmeter.server.stacks import REPEAT_MS
from jobmeter.server.tasks import Tasks


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    replicas = [{"name": f"worker-{at}", "node": f"n{at % 2}", "rank": at} for at in range(4)]
    made.ingest(
        records({"jobs": [{"job_id": "j", "state": "Running", "start": made.clock.now_ms(), "replicas": replicas}]})
    )
    yield made
    made.application.close()


def carry(server):
    services = server.application.services
    Tasks(services.executor, services.registry, services.thresholds, server.clock).round()


def request(server, key=None, job="j", **more):
    return server.call("POST", "/tasks", {"type": "stacks", "job": job, **more}, key)


def poll(server, node, *answers, key=None, **more):
    answer = server.call("POST", f"/nodes/{node}/checks", {"answers": list(answers), **more}, key)
    assert answer.status == 200, answer.body
    return answer.json()["asks"]


def evidence(*ranks, **more):
    """Return the evidence of ranks; each is (number, function, system call)."""
    found = [
        {
            "replica": f"worker-{at}",
            "rank": at,
            "pid": 100 + at,
            "state": "S",
            "call": call,
            "threads": [{"id": 100 + at, "name": "MainThread", "frames": [[function, "/srv/train.py", 7]]}],
        }
        for at, function, call in ranks
    ]
    return {"ranks": found, **more}


def frames(content):
    for rank in content["ranks"]:
        for thread in rank["threads"]:
            thread["frames"] = [dict(zip(("function", "file", "line"), one, strict=True)) for one in thread["frames"]]
    return content


WAITS = [(at, "all_reduce", "recvfrom") for at in (0, 1, 3)]
EVEN = frames(evidence(WAITS[0], (2, "load", "clock_nanosleep")))
ODD = frames(evidence(WAITS[1], WAITS[2]))
SENTENCE = (
    "worker-2 (n0, pid 102) is not in the collective: it sleeps in `load` (train.py:7); "
    "worker-0, worker-1, worker-3 wait in `all_reduce`"
)


def test_agents_answer_and_the_rank_is_named(server):
    task = request(server).json()["id"]
    asks = poll(server, "n0")
    assert asks == [{"task": task, "checks": [], "job": "j"}]
    assert poll(server, "n9") == []
    poll(server, "n0", {"task": task, "stacks": EVEN})
    carry(server)
    assert server.call("GET", f"/tasks/{task}").json()["state"] == "running", "the other node may still answer"
    assert poll(server, "n1", {"task": task, "stacks": ODD}) == []
    carry(server)
    found = server.call("GET", f"/tasks/{task}").json()
    assert (found["state"], found["verdict"], found["message"]) == ("done", "fault", SENTENCE)
    assert [len(one["stacks"]["ranks"]) for one in found["answers"]] == [2, 2]
    events = server.call("GET", "/jobs/j/events").json()["events"]
    stacks = [one for one in events if one["reason"] == STACK_EVIDENCE]
    assert {(one.get("replica", ""), one["message"] == SENTENCE) for one in stacks} == {("", True), ("worker-2", False)}


def test_the_event_about_a_rank_that_may_be_slow_is_information(server):
    task = request(server).json()["id"]
    slow = frames(evidence(WAITS[0], (2, "save", "fsync")))
    poll(server, "n0", {"task": task, "stacks": slow})
    poll(server, "n1", {"task": task, "stacks": ODD})
    carry(server)
    events = server.call("GET", "/jobs/j/events").json()["events"]
    levels = {one.get("replica", ""): one["level"] for one in events if one["reason"] == STACK_EVIDENCE}
    assert levels == {"": "warning", "worker-2": "info"}


def test_a_node_that_does_not_answer_is_named_at_the_deadline(server):
    task = request(server).json()["id"]
    poll(server, "n0", {"task": task, "stacks": EVEN})
    server.clock.time_ms += 61_000
    assert poll(server, "n1", {"task": task, "stacks": ODD}) == []
    carry(server)
    carry(server)
    found = server.call("GET", f"/tasks/{task}").json()
    assert found["state"] == "done"
    assert "n1: no answer from its agent" in found["message"]


def test_without_any_answer_there_is_no_event(server):
    task = request(server).json()["id"]
    server.clock.time_ms += 61_000
    carry(server)
    carry(server)
    found = server.call("GET", f"/tasks/{task}").json()
    assert found["verdict"] == "unknown"
    assert found["message"].startswith("no rank was found")
    events = server.call("GET", "/jobs/j/events").json()["events"]
    assert [one for one in events if one["reason"] == STACK_EVIDENCE] == []


def test_a_run_answers_for_its_own_job_alone(server):
    task = request(server).json()["id"]
    checks = server.call("POST", "/tasks", {"nodes": ["n0"]}).status
    assert checks == 404, "no agent reported the node"
    assert poll(server, "n0", job="another") == []
    assert [one["task"] for one in poll(server, "n0", job="j", project="default")] == [task]


def test_an_older_agent_without_evidence_leaves_the_request_to_others(server):
    task = request(server).json()["id"]
    assert [one["task"] for one in poll(server, "n0", {"task": task, "checks": []})] == [task]


def test_who_may_request(server):
    """Keys that may write the job and administrators may; a reader, a share token and another project may not."""
    reader, writer = server.key("reader"), server.key("writer")
    assert request(server, reader).status == 403
    assert request(server, server.key("writer", "theirs")).status == 404
    share = issue(server.application.services.vault, "default", "j", server.clock.now_ms(), 3_600)[0]
    body, headers = {"type": "stacks", "job": "j"}, {"Authorization": f"Bearer {share}"}
    assert server.call("POST", "/tasks", body, headers=headers).status == 401
    made = request(server, writer)
    assert made.status == 200
    task = made.json()["id"]
    assert server.call("GET", f"/tasks/{task}", key=server.key("reader", "theirs")).status == 404
    theirs = server.key("writer", "theirs")
    assert poll(server, "n0", {"task": task, "stacks": EVEN}, key=theirs) == []
    assert [one["task"] for one in poll(server, "n0")] == [task], "an answer of another project does not count"


def test_a_request_soon_after_another_one_gets_its_evidence(server):
    first = request(server).json()["id"]
    server.clock.time_ms += REPEAT_MS - 1
    assert request(server).json()["id"] == first
    server.clock.time_ms += 1
    assert request(server).json()["id"] != first


def test_a_job_that_does_not_run_or_has_no_node_is_refused(server):
    assert request(server, job="nobody").status == 404
    assert request(server, job="").json()["error"]["field"] == "job"
    server.ingest(records({"jobs": [{"job_id": "nowhere", "state": "Running", "start": 1, "replicas": ["worker-0"]}]}))
    assert "no node is known" in request(server, job="nowhere").json()["error"]["message"]
    now_ms = server.clock.now_ms()
    server.ingest(records({"jobs": [{"job_id": "j", "state": "Failed", "end": now_ms}]}))
    answer = request(server)
    assert (answer.status, answer.json()["error"]["field"]) == (400, "job")


def test_what_is_too_large_is_refused(server):
    task = request(server).json()["id"]
    large = frames(evidence((0, "x" * (LONGEST_TEXT + 1), "read")))
    answer = server.call("POST", "/nodes/n0/checks", {"answers": [{"task": task, "stacks": large}]})
    assert answer.status == 400
    assert answer.json()["error"]["field"] == "answers.stacks"
