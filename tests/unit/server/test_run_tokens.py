"""Tests of tokens for the MLflow runs of one job: the operations that their holder may use."""

import base64
import json
from urllib.parse import quote

import pytest

from jobmeter.access.trace import RUN_LIFE_MS

RUNS = "/api/2.0/mlflow/runs"


def bearer(token):
    return {"Authorization": f"Bearer {getattr(token, 'token', token)}"}


def token_of(server, key, job="train-7", query=""):
    reply = server.call("POST", f"/jobs/{job}/run-token{query}", key=key)
    assert reply.status == 200, reply.body
    return reply.json()["token"]


def create(server, token, **body):
    return server.raw("POST", f"{RUNS}/create", json.dumps({"experiment_id": "0", **body}).encode(), bearer(token))


def test_its_runs_join_the_job_and_no_other(server):
    key = server.key("writer", "lab")
    tags = [{"key": "jobmeter.job", "value": "other"}]
    made = create(server, token_of(server, key, "a job: 7%"), tags=tags)
    assert made.status == 200, made.body
    found = server.call("GET", "/jobs", key=key).json()["jobs"]
    assert [(one["id"], one["project"]) for one in found] == [("a job: 7%", "lab")]


@pytest.mark.parametrize("job", ["-" * 128, "\N{GRINNING FACE}" * 128], ids=["long", "wide"])
def test_a_job_whose_id_fits_into_no_run_id_is_not_tracked(server, job):
    path = f"/jobs/{quote(job)}/run-token"
    reply = server.call("POST", path, key=server.key("writer", "lab"))
    assert (reply.status, reply.json()["error"]["field"]) == (400, "job")


def test_a_run_joins_a_job_in_the_jobs_own_project(server):
    server.call("POST", "/jobs", [{"job_id": "train-7", "state": "Running"}], key=server.key("writer", "lab"))
    tags = [{"key": "jobmeter.job", "value": "train-7"}]
    run = create(server, server.admin, tags=tags).json()["run"]["info"]["run_id"]
    value = {"run_id": run, "key": "loss", "value": 0.5, "timestamp": server.clock.now_ms()}
    assert server.raw("POST", f"{RUNS}/log-metric", json.dumps(value).encode(), bearer(server.admin)).status == 200
    assert [(job["id"], job["project"]) for job in server.call("GET", "/jobs").json()["jobs"]] == [("train-7", "lab")]
    read = server.raw("GET", f"{RUNS}/get?run_id={run}", headers=bearer(server.key("reader", "lab")))
    assert [metric["value"] for metric in read.json()["run"]["data"]["metrics"]] == [0.5]


def test_a_run_token_opens_nothing_else(server):
    key = server.key("writer", "lab")
    token = token_of(server, key)
    own = create(server, key).json()["run"]["info"]["run_id"]
    assert server.raw("GET", f"{RUNS}/get?run_id={own}", headers=bearer(token)).status == 404
    for method, path in (("GET", "/api/jobmeter/v1/jobs"), ("POST", "/api/jobmeter/v1/jobs/train-7/run-token")):
        assert server.raw(method, path, headers=bearer(token)).status == 401
    for path in ("/v1/metrics", "/v1/traces"):
        headers = {**bearer(token), "Content-Type": "application/x-protobuf"}
        assert server.raw("POST", path, b"", headers).status == 403


def test_it_ends_with_its_time_or_its_key(server):
    key = server.key("writer", "lab")
    token = token_of(server, key)
    server.clock.time_ms += RUN_LIFE_MS - 1
    assert create(server, token).status == 200
    server.clock.time_ms += 1
    assert create(server, token).status == 401
    server.clock.time_ms -= RUN_LIFE_MS
    services = server.application.services
    services.registry.keys.revoke(key.id, server.clock.now_ms())
    services.authenticator.forget(key.id)
    assert create(server, token).status == 401


@pytest.mark.parametrize(("role", "query"), [("reader", ""), ("writer", "?project=other")])
def test_a_key_gives_no_more_than_it_may_do(server, role, query):
    assert server.call("POST", f"/jobs/train-7/run-token{query}", key=server.key(role, "lab")).status == 403


def test_a_trace_token_opens_no_runs(server):
    reply = server.raw(
        "GET", "/api/v1/PAILLMTrace/XtraceToken", headers={**bearer(server.key("writer", "lab")), "Host": "h:1"}
    )
    assert create(server, reply.json()["Token"]).status == 403


@pytest.mark.parametrize("user", ["", "lin"])
def test_a_token_may_be_a_password(server, user):

    key = server.key("writer", "lab")
    pair = base64.b64encode(f"{user}:{key.token}".encode()).decode()
    body = b'{"experiment_id":"0"}'
    assert server.raw("POST", f"{RUNS}/create", body, {"Authorization": f"Basic {pair}"}).status == 200


def test_a_run_is_a_job_of_its_project(server):
    key = server.key("writer", "lab")
    run = create(server, key, run_name="first").json()["run"]["info"]["run_id"]
    found = server.call("GET", f"/jobs/{run}", key=key).json()["job"]
    assert (found["name"], found["type"], found["state"], found["labels"]) == (
        "first",
        "MLflow",
        "Running",
        {"experiment": "Default"},
    )
    assert server.raw("GET", f"{RUNS}/get?run_id={run}", headers=bearer(server.key("reader", "other"))).status == 404
