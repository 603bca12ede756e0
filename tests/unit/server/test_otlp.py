"""Tests of OTLP over HTTP through the whole server, without a socket."""

import gzip
import json

import pytest
from tests.support.otlp import JSON, PROTOBUF, Response, add, as_json, metric, request

PATH = "/v1/metrics"
BOTH = pytest.mark.parametrize("headers", [PROTOBUF, JSON], ids=["protobuf", "json"])
JOB = {"jobmeter.job.id": "j", "jobmeter.replica": "worker-0"}


def bearer(key):
    return {"Authorization": f"Bearer {key.token}"}


def sent(server, headers, value=0.5, offset=0):
    message = request(JOB, add(metric("app.loss"), (server.clock.now_ms() + offset) * 1_000_000, value))
    return as_json(message) if headers is JSON else message.SerializeToString()


@BOTH
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_sent_is_there_when_the_answer_comes(server, headers, packed):
    key, body = server.key("writer", "lab"), sent(server, headers, 0.25)
    more = {"Content-Encoding": "gzip"} if packed else {}
    reply = server.raw("POST", PATH, gzip.compress(body) if packed else body, {**headers, **more, **bearer(key)})
    assert (reply.status, reply.headers["content-type"]) == (200, headers["Content-Type"])
    assert reply.body == (b"{}" if headers is JSON else b"")
    reader = server.key("reader", "lab")
    job = server.call("GET", "/jobs/j", key=reader).json()
    assert (job["job"]["project"], [one["name"] for one in job["replicas"]]) == ("lab", ["worker-0"])
    # The range excludes its end: a query for a sample of this moment ends at the next one.
    server.clock.time_ms += 60_000
    found = server.call("GET", "/jobs/j/metrics?metric=app.loss&since=10m&step=1m", key=reader).json()
    assert [value for line in found["lines"] for _, value in line["points"]] == [0.25]


@BOTH
def test_without_a_key_or_with_a_readers_nothing_is_stored(server, headers):
    for credential, status, code in (({}, 401, 16), (bearer(server.key("reader", "lab")), 403, 7)):
        reply = server.raw("POST", PATH, sent(server, headers), {**headers, **credential})
        assert (reply.status, reply.headers["content-type"]) == (status, headers["Content-Type"])
        assert reply.body.startswith(bytes((8, code))) or reply.json()["code"] == code
    assert server.call("GET", "/jobs/j").status == 404


def test_what_is_too_far_ahead_is_counted_and_reported(server):
    ahead, now = sent(server, PROTOBUF, offset=3_600_000), sent(server, PROTOBUF)
    reply = server.raw("POST", PATH, ahead + now, {**PROTOBUF, **bearer(server.admin)})
    partial = Response.FromString(reply.body).partial_success
    assert (reply.status, partial.rejected_data_points) == (200, 1)
    assert partial.error_message == "1 data points were refused: 1 for future"
    metrics = server.raw("GET", "/metrics", headers=bearer(server.admin)).body.decode()
    assert 'jobmeter_ingest_samples_rejected_total{reason="future"} 1.0' in metrics
    assert "jobmeter_ingest_samples_accepted_total 1.0" in metrics


def test_the_same_request_again_counts_once(server):
    key = server.key("writer", "lab")
    body = sent(server, PROTOBUF)
    for _ in range(2):
        assert server.raw("POST", PATH, body, {**PROTOBUF, **bearer(key)}).status == 200
    server.clock.time_ms += 60_000
    query = "/jobs/j/metrics?metric=app.loss&since=10m&step=10m&statistic=sum"
    found = server.call("GET", query, key=server.key("reader", "lab")).json()
    assert sum(value for line in found["lines"] for _, value in line["points"]) == 0.5


@pytest.mark.parametrize("encoding", ["zstd", "snappy", "deflate"])
def test_another_encoding_is_415(server, encoding):
    headers = {**JSON, "Content-Encoding": encoding, **bearer(server.admin)}
    reply = server.raw("POST", PATH, sent(server, JSON), headers)
    assert (reply.status, reply.json()["code"]) == (415, 3)


def test_a_damaged_gzip_body_is_400(server):
    headers = {**JSON, "Content-Encoding": "gzip", **bearer(server.admin)}
    reply = server.raw("POST", PATH, gzip.compress(sent(server, JSON))[:-3], headers)
    assert (reply.status, reply.json()["code"]) == (400, 3)


def test_a_body_that_is_too_large_is_413(server):
    reply = server.raw("POST", PATH, bytes(33 * 2**20), {**PROTOBUF, **bearer(server.admin)})
    assert (reply.status, reply.headers["content-type"]) == (413, "application/x-protobuf")


def test_very_many_samples_are_413(server):
    made = metric("m")
    for at in range(100_001):
        made.gauge.data_points.add(time_unix_nano=at + 1, as_double=1.0)
    body = request({}, made).SerializeToString()
    assert server.raw("POST", PATH, body, {**PROTOBUF, **bearer(server.admin)}).status == 413


def test_a_key_that_sends_too_often_learns_when_to_come_again(tmp_path):
    from tests.support.serving import serving

    limited = serving(tmp_path / "data", rate_limits="ExportMetrics=1:1")
    headers = {**JSON, **bearer(limited.admin)}
    replies = [limited.raw("POST", PATH, sent(limited, JSON), headers) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 429]
    assert replies[1].headers["retry-after"] == "1"
    assert json.loads(replies[1].body)["details"][0]["retryDelay"] == "1s"
    limited.application.close()
