"""Tests of diagnostic tasks without a socket: answers, deadlines, restarts, limits, and visibility."""

import pytest
from msgspec.structs import replace
from tests.support.frames import records
from tests.support.serving import serving

from jobmeter.access.policy import Grant
from jobmeter.access.principal import Scope
from jobmeter.errors import ForbiddenError
from jobmeter.model.task import MOST_OPEN, GivenLog, NewTask, TaskState, TaskType
from jobmeter.server.tasks import MOST_ATTEMPTS, TASKS_PER_ROUND, Tasks, create_task


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    made.ingest(records({"nodes": [{"name": "n", "cluster": "c", "resource_group": "rg"}]}))
    yield made
    made.application.close()


def carry(server):
    services = server.application.services
    Tasks(services.executor, services.registry, services.thresholds, server.clock).round()


def create(server, key=None, **task):
    answer = server.call("POST", "/tasks", {"nodes": ["n"], **task}, key)
    assert answer.status == 200, answer.body
    return answer.json()["id"]


def get(server, task, key=None):
    return server.call("GET", f"/tasks/{task}", key=key).json()


def poll(server, *answers, key=None, node="n", cluster="c"):
    body = {"cluster": cluster, "answers": list(answers)}
    return [one["task"] for one in server.call("POST", f"/nodes/{node}/checks", body, key).json()["asks"]]


OK = {"name": "disks", "status": "ok", "text": "fine"}


def test_an_answer_ends_a_task(server):
    task = create(server)
    assert poll(server) == [task]
    assert poll(server, node="other") == []
    assert poll(server, cluster="d") == [task], "a task of no cluster asks the nodes of all"
    carry(server)
    assert get(server, task)["state"] == "running"
    assert poll(server, {"task": task, "checks": [OK]}) == []
    carry(server)
    found = get(server, task)
    assert (found["state"], found["verdict"], found["answers"][0]["checks"]) == ("done", "healthy", [OK])
    assert found["resource_group"] == "rg"


def test_silence_is_no_health_and_comes_too_late(server):
    task = create(server, cluster="c")
    carry(server)
    server.clock.time_ms += 61_000
    assert poll(server, {"task": task, "checks": [OK]}) == []
    carry(server)
    found = get(server, task)
    assert (found["state"], found["verdict"]) == ("done", "unknown")
    assert found["answers"][0]["text"] == "no answer from the agent"


def test_the_first_answer_counts_and_other_projects_cannot_give_it(server):
    task = create(server)
    other = server.key("writer", "theirs")
    assert poll(server, {"task": task, "checks": [{**OK, "status": "critical"}]}, key=other) == []
    assert poll(server) == [task]
    poll(server, {"task": task, "checks": [OK]})
    poll(server, {"task": task, "checks": [{**OK, "status": "critical"}]})
    carry(server)
    assert get(server, task)["verdict"] == "healthy"


def test_a_task_that_servers_leave_half_way_is_interrupted_in_the_end(server):
    task = create(server)
    table = server.application.services.registry.tasks
    [stored] = table.list_due(server.clock.now_ms(), 10)
    table.save(replace(stored, state=TaskState.RUNNING, attempts=MOST_ATTEMPTS))
    carry(server)
    assert get(server, task)["state"] == "running", "its node may still answer"
    server.clock.time_ms += 61_000
    carry(server)
    found = get(server, task)
    assert found["state"] == "interrupted"
    assert "stopped 3 times" in found["message"]


def test_who_may_make_and_see_tasks(server):
    reader, other = server.key("reader"), server.key("writer", "theirs")
    assert server.call("POST", "/tasks", {"nodes": ["n"]}, reader).status == 403
    assert server.call("POST", "/tasks", {"nodes": ["n"]}, other).status == 404
    task = create(server)
    assert get(server, task, reader)["id"] == task
    assert server.call("GET", f"/tasks/{task}", key=other).status == 404
    assert server.call("GET", "/tasks", key=other).json() == {"tasks": [], "total": 0}


def test_pages_and_bounds(server):
    made = [create(server) for _ in range(5)]
    found, after = [], ""
    while page := server.call("GET", f"/tasks?limit=2&after={after}").json()["tasks"]:
        found += [one["id"] for one in page]
        after = found[-1]
    assert sorted(found) == sorted(made)
    for _ in range(MOST_OPEN - 5):
        create(server)
    assert server.call("POST", "/tasks", {"nodes": ["n"]}).status == 429


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "nodes"),
        ({"nodes": ["n"], "start": 5, "end": 4}, "end"),
        ({"type": "logs"}, "logs"),
        ({"type": "job"}, "job"),
        ({"type": "what"}, "type"),
        ({"type": "logs", "logs": [{"lines": ["x" * 600_000]}]}, "logs"),
    ],
)
def test_wrong_tasks_are_named(server, body, field):
    answer = server.call("POST", "/tasks", body)
    assert answer.status in {400, 413}, answer.body
    assert answer.json()["error"]["field"] == field


def states(server):
    return {one["id"]: one["state"] for one in server.call("GET", "/tasks?limit=100").json()["tasks"]}


def test_tasks_that_wait_for_dead_agents_hold_nobody_up(server):
    """Waiting tasks of any number and any owner delay no other task; each ends at its deadline."""
    other = server.key("writer", "theirs")
    server.ingest(records({"nodes": [{"name": "n", "cluster": "c"}]}), other)
    silent = [create(server, project="default") for _ in range(70)]
    silent += [create(server, key=other) for _ in range(20)]
    for _ in range(len(silent) // TASKS_PER_ROUND + 1):
        carry(server)
    assert {get(server, task)["state"] for task in silent} == {"running"}
    server.clock.time_ms += 1_000
    lines = {"type": "logs", "logs": [{"lines": ["CUDA error: out of memory"]}]}
    mine, theirs = create(server, **lines), create(server, key=other, **lines)
    carry(server)
    assert (get(server, mine)["state"], get(server, theirs)["state"]) == ("done", "done")
    server.clock.time_ms += 61_000
    for _ in range(len(silent) // TASKS_PER_ROUND + 1):
        carry(server)
    assert {get(server, task)["state"] for task in silent} == {"done"}


def test_the_tasks_of_a_project_with_many_leave_room_for_those_of_another(server):
    lines = {"type": "logs", "logs": [{"lines": ["nothing"]}]}
    many = [create(server, **lines) for _ in range(MOST_OPEN)]
    server.clock.time_ms += 1_000
    other = server.key("writer", "theirs")
    last = [create(server, key=other, **lines) for _ in range(2)]
    carry(server)
    assert [get(server, task)["state"] for task in last] == ["done", "done"]
    done = [task for task in many if get(server, task)["state"] == "done"]
    assert len(done) == TASKS_PER_ROUND - 2
    for _ in range(len(many) // TASKS_PER_ROUND + 1):
        carry(server)
    assert {get(server, task)["state"] for task in many} == {"done"}


def test_an_answered_task_ends_while_others_wait(server):
    waits, answered = create(server), create(server)
    carry(server)
    poll(server, {"task": answered, "checks": [OK]})
    carry(server)
    assert (get(server, waits)["state"], get(server, answered)["state"]) == ("running", "done")


@pytest.mark.parametrize(
    "scope",
    [
        Scope(frozenset({"theirs"})),
        Scope(None, "j1"),
        Scope(None, grant=Grant((), ())),
    ],
)
def test_log_lines_are_diagnosed_for_a_project_of_the_caller(server, scope):
    new_task = NewTask(type=TaskType.LOGS, logs=[GivenLog(lines=["x"])], project="default")
    with pytest.raises(ForbiddenError):
        create_task(server.application.services, new_task, scope)
    assert states(server) == {}
