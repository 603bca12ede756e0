"""Tests of requests for the busiest processes of nodes and jobs: the answering agents, and permitted answers."""

import pytest
from tests.support.frames import records
from tests.support.serving import serving
from tests.unit.server.test_stack_tasks import carry, poll

from jobmeter.model.task import CHECKS, MOST_PROCESSES

USE = {"pid": 7, "name": "python", "job": "j", "replica": "worker-0", "cores": 1.5, "memory": 2**20, "traffic": 0.0}
CHECK = {"name": "processes", "status": "ok", "text": "most processor time: python (7)", "processes": [USE]}


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    replicas = [{"name": f"worker-{at}", "node": f"n{at}"} for at in range(2)]
    job = {"job_id": "j", "state": "Running", "start": made.clock.now_ms(), "replicas": replicas}
    made.ingest(records({"jobs": [job], "nodes": [{"name": "n0"}]}))
    yield made
    made.application.close()


def request(server, key=None, **body):
    return server.call("POST", "/tasks", {"type": "processes", **body}, key)


def test_the_agents_of_a_job_answer_for_its_processes(server):
    made = request(server, job="j").json()
    task = made["id"]
    assert made["nodes"] == ["n0", "n1"]
    assert request(server, job="j").json()["id"] == task, "a further request soon after gets the same answers"
    assert poll(server, "n0") == [{"task": task, "checks": ["processes"], "job": "j"}]
    assert poll(server, "n0", job="another") == [], "a run answers for its own job alone"
    assert poll(server, "n0", {"task": task, "stacks": {"ranks": []}}, job="j", project="default"), "of another type"
    poll(server, "n0", {"task": task, "checks": [CHECK]})
    carry(server)
    running = server.call("GET", f"/tasks/{task}").json()
    assert (running["state"], [bool(one.get("time")) for one in running["answers"]]) == ("running", [True, False])
    server.clock.time_ms += 61_000
    carry(server)
    carry(server)
    done = server.call("GET", f"/tasks/{task}").json()
    assert (done["state"], done["verdict"]) == ("done", "unknown"), "one node has not answered"
    first, second = done["answers"]
    assert first["checks"][0]["processes"] == [USE]
    assert (second["node"], second.get("time")) == ("n1", None)


def test_the_agent_of_a_node_answers_for_all_of_its_processes(server):
    task = request(server, nodes=["n0"]).json()["id"]
    assert poll(server, "n0") == [{"task": task, "checks": ["processes"]}]
    whole = server.call("POST", "/tasks", {"type": "node", "nodes": ["n0"]}).json()["id"]
    poll(server, "n0", {"task": task, "checks": [CHECK]})
    assert poll(server, "n0") == [{"task": whole, "checks": list(CHECKS)}], "other checks are another task"
    carry(server)
    carry(server)
    done = server.call("GET", f"/tasks/{task}").json()
    assert (done["state"], done["verdict"]) == ("done", "healthy")
    assert done["answers"][0]["checks"][0]["processes"] == [USE]
    assert [one["id"] for one in server.call("GET", "/tasks?type=processes").json()["tasks"]] == [task]


@pytest.mark.parametrize(
    ("body", "field"),
    [({"job": "j", "nodes": ["n0"]}, "nodes"), ({}, "nodes"), ({"nodes": ["n0"], "start": 2, "end": 1}, "end")],
)
def test_a_request_about_no_job_and_no_node_or_about_both_is_refused(server, body, field):
    answer = request(server, **body)
    assert (answer.status, answer.json()["error"]["field"]) == (400, field)


def test_a_job_that_is_over_has_no_processes(server):
    server.ingest(records({"jobs": [{"job_id": "j", "state": "Failed", "end": server.clock.now_ms()}]}))
    answer = request(server, job="j")
    assert answer.status == 400
    assert "needs running processes" in answer.json()["error"]["message"]


def test_a_reader_and_another_project_may_not_request(server):
    assert request(server, server.key("reader"), job="j").status == 403
    assert request(server, server.key("writer", "theirs"), job="j").status == 404
    assert request(server, server.key("writer", "theirs"), nodes=["n0"]).status == 404


@pytest.mark.parametrize("processes", [[USE] * (MOST_PROCESSES + 1), [{**USE, "name": "x" * 129}]])
def test_an_answer_that_is_too_large_is_refused(server, processes):
    task = request(server, job="j").json()["id"]
    answers = [{"task": task, "checks": [{**CHECK, "processes": processes}]}]
    answer = server.call("POST", "/nodes/n0/checks", {"answers": answers})
    assert (answer.status, answer.json()["error"]["field"]) == (400, "answers.checks")
