"""Tests of ``GET /nodes/{node}/pods``: the replicas that pods are, by their cluster's watcher, and permissions."""

import pytest
from tests.support.frames import records
from tests.support.serving import serving

from jobmeter.model.pod import MOST_PODS

A, B, C = ("0a1b2c3d-0001-0002-0003-00000000000" + digit for digit in "abc")


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    yield made
    made.application.close()


def record_job(server, job, *replicas, key=None, watched=True, **fields):
    labels = {"kubernetes.uid": "u"} if watched else {}
    body = {"jobs": [{"job_id": job, "labels": labels, "replicas": list(replicas), **fields}]}
    server.ingest(records(body)) if key is None else server.ingest(records(body), key)


def of(pod, name="worker-0", attempt=0, node="n1", cluster="c1", **fields):
    return {"name": name, "attempt": attempt, "node": node, "cluster": cluster, "pod_id": pod, **fields}


def ask(server, *uids, key=None, node="n1", cluster="c1"):
    answer = server.call("GET", f"/nodes/{node}/pods?cluster={cluster}&uid={','.join(uids)}", key=key)
    assert answer.status == 200, answer.body
    return answer.json()["pods"]


def test_a_pod_is_the_replica_of_the_watcher(server):
    record_job(server, "two", of(A, attempt=2, rank=4), of(A, attempt=3, rank=4), of(B, "worker-1"))
    assert ask(server, A, B, C) == [
        {"uid": A, "project": "default", "job": "two", "replica": "worker-0", "first": 2, "rank": 4},
        {"uid": B, "project": "default", "job": "two", "replica": "worker-1"},
    ]
    assert ask(server, C) == []


def test_what_an_agent_reported_by_itself_is_no_answer(server):
    record_job(server, f"pod-{A}", of(A), watched=False)
    record_job(server, "guess", of(A, "worker-7"), watched=False)
    assert ask(server, A) == []
    record_job(server, "two", of(A))
    assert [one["job"] for one in ask(server, A)] == ["two"]


def test_a_pod_of_another_node_or_cluster_is_not_reported(server):
    record_job(server, "two", of(A), of(B, "worker-1", node=""))
    assert ask(server, A, node="n2") == []
    assert ask(server, A, cluster="c2") == []
    assert [one["uid"] for one in ask(server, A, B)] == [A, B], "one that has no node yet is its pod's alone"


def test_each_key_hears_of_its_own_project_alone(server):
    first, second = server.key("writer", "one"), server.key("writer", "two")
    record_job(server, "j", of(A), key=first)
    assert [one["project"] for one in ask(server, A, key=first)] == ["one"]
    assert ask(server, A, key=second) == []
    assert [one["project"] for one in ask(server, A)] == ["one"]
    assert server.call("GET", f"/nodes/n1/pods?uid={A}", key=server.key("reader")).status == 403


@pytest.mark.parametrize("first", ["one", "two"])
def test_a_pod_that_two_projects_claim_is_neithers(server, first):
    keys = {name: server.key("writer", name) for name in ("one", "two")}
    for name in (first, *(other for other in keys if other != first)):
        record_job(server, "j", of(A, state="Running"), of(B, "worker-1"), key=keys[name])
    assert ask(server, A, B) == []
    assert [one["project"] for one in ask(server, A, key=keys["two"])] == ["two"]
    record_job(server, "j", of(A, state="Stopped"), key=keys["one"])
    assert [(one["uid"], one["project"]) for one in ask(server, A, B)] == [(A, "two")]


def test_a_pod_with_two_jobs_in_a_project_is_of_the_one_written_last(server):
    for job in ("b", "a", "c"):
        record_job(server, job, of(A))
        assert [one["job"] for one in ask(server, A)] == [job]
        server.clock.time_ms += 1_000
    record_job(server, "b", of(A), name="again")
    assert [one["job"] for one in ask(server, A)] == ["b"]


def test_a_question_is_bounded_and_checked(server):
    many = ",".join(f"{number:032x}" for number in range(MOST_PODS + 1))
    answer = server.call("GET", f"/nodes/n1/pods?uid={many}")
    assert (answer.status, answer.json()["error"]["field"]) == (400, "uid")
    assert server.call("GET", "/nodes/n1/pods").json()["error"]["field"] == "uid"
    assert server.call("GET", f"/nodes/n1/pods?cluster=a/b&uid={A}").json()["error"]["field"] == "cluster"
    assert server.call("GET", "/nodes/n1/pods?uid=%3Cx%3E").json()["error"]["field"] == "uid"


def test_the_index_answers(server):
    database = server.application.services.registry.database
    with database.read() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT name FROM replicas WHERE pod_id != '' AND pod_id IN ('a', 'b')"
        ).all()
    assert "replicas_pod" in str(plan)


def test_the_name_of_a_pod_is_in_the_answer_on_its_job(server):
    record_job(server, "two", {**of(A), "pod": "two-0-x7k2p"}, of(B, "worker-1"))
    found = server.call("GET", "/jobs/two").json()["replicas"]
    assert [(one["pod"], one["pod_id"]) for one in found] == [("two-0-x7k2p", A), ("", B)]
    body = {"jobs": [{"job_id": "two", "replicas": [{**of(A), "pod": "x" * 2_000}]}]}
    answer = server.ingest(records(body))
    assert (answer.status, answer.json()["error"]["field"]) == (400, "replicas.pod")
