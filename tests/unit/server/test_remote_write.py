"""Tests of remote write through the whole server, without a socket."""

import base64
import gzip

import pytest
from tests.support.prometheus import HEADERS_1, HEADERS_2, request_1, request_2, snappy

PATH = "/api/v1/write"


def bearer(key):
    return {"Authorization": f"Bearer {key.token}"}


def basic(key):
    return {"Authorization": "Basic " + base64.b64encode(f"prometheus:{key.token}".encode()).decode()}


def sent(server, value=0.5, offset=0):
    labels = [("__name__", "DCGM_FI_DEV_GPU_UTIL"), ("Hostname", "n"), ("gpu", "0"), ("pod", "j-worker-0")]
    return [(labels, [(value, server.clock.now_ms() + offset)])]


@pytest.mark.parametrize("credential", [bearer, basic])
@pytest.mark.parametrize(("headers", "encode"), [(HEADERS_1, request_1), (HEADERS_2, request_2)])
def test_what_is_written_is_there_when_the_answer_comes(server, headers, encode, credential):
    key = server.key("writer", "lab")
    reply = server.raw("POST", PATH, snappy(encode(sent(server, 57.0))), {**headers, **credential(key)})
    assert (reply.status, reply.body) == (204, b"")
    assert ("x-prometheus-remote-write-samples-written" in reply.headers) == (headers is HEADERS_2)
    job = server.call("GET", "/jobs/j", key=server.key("reader", "lab")).json()
    assert (job["job"]["project"], [one["name"] for one in job["replicas"]]) == ("lab", ["worker-0"])


def test_the_same_request_again_counts_once(server):
    key = server.key("writer", "lab")
    body = snappy(request_1(sent(server)))
    for _ in range(2):
        assert server.raw("POST", PATH, body, {**HEADERS_1, **bearer(key)}).status == 204


def test_without_a_key_or_with_a_readers_nothing_is_written(server):
    body = snappy(request_1(sent(server)))
    missing = server.raw("POST", PATH, body, HEADERS_1)
    assert (missing.status, missing.headers["www-authenticate"]) == (401, 'Basic realm="jobmeter"')
    assert server.raw("POST", PATH, body, {**HEADERS_1, **bearer(server.key("reader", "lab"))}).status == 403
    assert server.call("GET", "/jobs/j").status == 404


def test_what_is_too_far_ahead_is_counted_and_reported(server):
    body = snappy(request_1([*sent(server, offset=3_600_000), *sent(server, 1.0)]))
    reply = server.raw("POST", PATH, body, {**HEADERS_1, **bearer(server.admin)})
    assert reply.status == 400
    assert reply.body == b"1 samples were stored, 1 were refused: 1 for future\n"
    metrics = server.raw("GET", "/metrics", headers=bearer(server.admin)).body.decode()
    assert 'jobmeter_ingest_samples_rejected_total{reason="future"} 1.0' in metrics
    assert "jobmeter_ingest_samples_accepted_total 1.0" in metrics


def test_an_unknown_speed_is_counted_and_is_no_error(server):
    now = server.clock.now_ms()
    speed = [("__name__", "node_network_speed_bytes"), ("device", "eth0"), ("instance", "n:9100")]
    negative = [("__name__", "node_memory_MemFree_bytes"), ("instance", "n:9100")]
    headers = {**HEADERS_1, **bearer(server.admin)}
    reply = server.raw("POST", PATH, snappy(request_1([(speed, [(-125000.0, now)]), *sent(server)])), headers)
    assert (reply.status, reply.body) == (204, b"")
    reply = server.raw("POST", PATH, snappy(request_1([(speed, [(-1.0, now)]), (negative, [(-1.0, now)])])), headers)
    assert (reply.status, reply.body) == (400, b"0 samples were stored, 1 were refused: 1 for value\n")
    metrics = server.raw("GET", "/metrics", headers=bearer(server.admin)).body.decode()
    assert 'jobmeter_ingest_samples_rejected_total{reason="absent"} 2.0' in metrics
    asked = "/prometheus/api/v1/query?query=node_network_speed_bytes"
    assert server.raw("GET", asked, headers=bearer(server.admin)).json()["data"]["result"] == []


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate"])
def test_another_encoding_is_415(server, encoding):
    body = gzip.compress(request_1(sent(server)))
    headers = {**HEADERS_1, "Content-Encoding": encoding, **bearer(server.admin)}
    reply = server.raw("POST", PATH, body, headers)
    assert (reply.status, reply.headers["content-type"]) == (415, "text/plain; charset=utf-8")


def test_other_operations_do_not_take_snappy(server):
    headers = {"Content-Encoding": "snappy", **bearer(server.admin)}
    assert server.raw("POST", "/api/put", snappy(b"[]"), headers).status == 400


def test_a_body_that_is_too_large_is_413(server):
    body = bytes(33 * 2**20)
    assert server.raw("POST", PATH, body, {**HEADERS_1, **bearer(server.admin)}).status == 413


def test_very_many_series_are_413(server):
    reply = server.raw("POST", PATH, snappy(b"\x0a\x00" * 100_001), {**HEADERS_1, **bearer(server.admin)})
    assert reply.status == 413
