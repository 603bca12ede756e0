"""Tests of spans and log records through the whole server, and of the answers about them."""

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.support.otlp import JSON, PROTOBUF, as_ids, fill

from jobmeter.access.trace import LIFE_MS
from jobmeter.cli.traces import iterate_tree
from jobmeter.model.answers import SpanBody

TRACE = bytes(range(16))
BOTH = pytest.mark.parametrize("headers", [PROTOBUF, JSON], ids=["protobuf", "json"])


def bearer(token):
    return {"Authorization": f"Bearer {getattr(token, 'token', token)}"}


def request(server, *spans, resource=None, trace=TRACE):
    """Make a request of spans: (number, parent, name, start in ms before now, length in ms, status, attributes)."""
    message = ExportTraceServiceRequest()
    part = message.resource_spans.add()
    fill(part.resource.attributes, {"jobmeter.job.id": "j", "service.name": "s"} if resource is None else resource)
    scoped = part.scope_spans.add()
    for number, parent, name, before, length, status, attributes in spans:
        start = (server.clock.now_ms() - before) * 1_000_000
        made = scoped.spans.add(
            trace_id=trace,
            span_id=number.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"",
            name=name,
            start_time_unix_nano=start,
            end_time_unix_nano=start + length * 1_000_000,
        )
        made.status.code = status
        fill(made.attributes, attributes)
    return message


def send(server, message, headers=PROTOBUF, token=None, path="/v1/traces"):
    body = as_ids(message) if headers is JSON else message.SerializeToString()
    return server.raw("POST", path, body, {**headers, **bearer(token or server.admin)})


TREE = (
    (1, 0, "epoch", 1000, 900, 0, {"rank": 0}),
    (2, 1, "step", 990, 500, 2, {"loss": 0.5}),
    (3, 2, "load", 980, 100, 0, {"path": "/data/a"}),
)


@BOTH
def test_a_tree_of_spans_is_read_back(server, headers):
    key = server.key("writer", "lab")
    for _ in range(2):
        reply = send(server, request(server, *TREE), headers, key)
        assert (reply.status, reply.body) == (200, b"{}" if headers is JSON else b"")
    reader = server.key("reader", "lab")
    (trace,) = server.call("GET", "/traces?job=j", key=reader).json()["traces"]
    assert (trace["name"], trace["spans"], trace["errors"], trace["duration_ns"]) == ("epoch", 3, 1, 900_000_000)
    found = server.call("GET", f"/traces/{TRACE.hex()}", key=reader).json()
    assert [(one["name"], int(one["parent"] or "0", 16), one["status"]) for one in found["spans"]] == [
        ("epoch", 0, "unset"), ("step", 1, "error"), ("load", 2, "unset"),
    ]  # fmt: skip
    assert [one["attributes"] for one in found["spans"]] == [{"rank": 0}, {"loss": 0.5}, {"path": "/data/a"}]
    assert found["next"] is None
    assert server.call("GET", "/jobs/j", key=reader).json()["job"]["project"] == "lab"


def test_another_project_sees_nothing(server):
    send(server, request(server, *TREE), token=server.key("writer", "lab"))
    other = server.key("reader", "other")
    assert server.call("GET", "/traces", key=other).json()["traces"] == []
    assert server.call("GET", "/traces?job=j", key=other).status == 404
    assert server.call("GET", f"/traces/{TRACE.hex()}", key=other).status == 404
    assert server.call("GET", "/traces?project=lab", key=other).status == 403
    assert server.raw("GET", "/api/jobmeter/v1/traces").status == 401


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("name=load", True), ("name=none", False), ("status=error", True), ("status=ok", False),
        ("attribute=loss%3D0.5", True), ("attribute=loss%3D0.7", False), ("attribute=service.name%3Ds", True),
        ("min_duration=900", True), ("min_duration=901", False), ("max_duration=899", False), ("contains=EPO", True),
        ("service=s&name=step", True), ("since=1m", True), ("end=2001-01-01", False), ("replica=worker-9", False),
    ],
)  # fmt: skip
def test_filters(server, query, found):
    send(server, request(server, *TREE))
    reply = server.call("GET", f"/traces?job=j&count=true&{query}")
    assert (reply.status, reply.json()["total"]) == (200, int(found)), reply.body
    assert len(reply.json()["traces"]) == int(found)


def test_pages_go_on_by_a_cursor_that_cannot_be_made_up(server):
    for number in range(5):
        trace = bytes((number + 1,)) * 16
        send(server, request(server, (1, 0, f"t{number}", 100 * number + 50, 10 + number, 0, {}), trace=trace))
    names, cursors = list[str](), list[str | None]([""])
    while cursors[-1] is not None:
        more = f"&cursor={cursors[-1]}" if cursors[-1] else ""
        page = server.call("GET", f"/traces?job=j&sort=duration&limit=2{more}").json()
        names += [one["name"] for one in page["traces"]]
        cursors.append(page["next"])
    last = cursors[-2] or ""
    assert names == ["t4", "t3", "t2", "t1", "t0"]
    changed = last[:-2] + ("AA" if last[-2:] != "AA" else "BB")
    for query in (f"sort=duration&cursor={changed}", f"sort=start&cursor={last}", "sort=duration&cursor=%FF"):
        reply = server.call("GET", f"/traces?job=j&{query}")
        assert (reply.status, reply.json()["error"]["field"]) == (400, "cursor")
    other = server.call("GET", f"/traces?job=j&sort=duration&cursor={last}", key=server.key("reader"))
    assert other.status == 400
    server.clock.time_ms += 3_600_001
    assert server.call("GET", f"/traces?job=j&sort=duration&cursor={last}").status == 400


def test_a_spans_pages_follow_each_other(server):
    send(server, request(server, *TREE))
    first = server.call("GET", f"/traces/{TRACE.hex()}?limit=2").json()
    rest = server.call("GET", f"/traces/{TRACE.hex()}?limit=2&cursor={first['next']}").json()
    assert [one["name"] for one in first["spans"] + rest["spans"]] == ["epoch", "step", "load"]
    assert rest["next"] is None


def test_what_is_refused_is_reported_and_counted(server):
    old = 400 * 86_400_000
    message = request(server, *TREE, (4, 0, "ahead", -3_600_000, 1, 0, {}), (5, 0, "old", old, 1, 0, {}))
    message.resource_spans[0].scope_spans[0].spans.add(trace_id=b"no")
    answered = ExportTraceServiceResponse.FromString(send(server, message).body).partial_success
    assert (answered.rejected_spans, answered.error_message) == (
        3, "3 spans were refused: 1 for expired, 1 for future, 1 for id",
    )  # fmt: skip
    metrics = server.raw("GET", "/metrics", headers=bearer(server.admin)).body.decode()
    assert "jobmeter_ingest_spans_accepted_total 3.0" in metrics
    assert 'jobmeter_ingest_spans_rejected_total{reason="id"} 1.0' in metrics


def records(server, resource):
    message = ExportLogsServiceRequest()
    part = message.resource_logs.add()
    fill(part.resource.attributes, resource)
    made = part.scope_logs.add().log_records.add(
        time_unix_nano=server.clock.now_ms() * 1_000_000, severity_number=17, trace_id=TRACE
    )
    made.body.string_value = "nan in gradients"
    fill(made.attributes, {"step": 7, "why": "a b\nc"})
    return message


@BOTH
def test_log_records_become_lines_of_their_job(server, headers):
    key = server.key("writer", "lab")
    resource = {"service.name": "trainer", "host.name": "n1"}
    for _ in range(2):
        assert send(server, records(server, resource), headers, key, "/v1/logs").status == 200
    found = server.call("GET", "/jobs/trainer/logs", key=server.key("reader", "lab")).json()["lines"]
    assert [(one["text"], one["level"], one["stream"], one["node"]) for one in found] == [
        (f'nan in gradients step=7 why="a b\\nc" trace_id={TRACE.hex()}', "error", "otlp", "n1")
    ]


def test_a_record_of_nobody_is_refused(server):
    reply = send(server, records(server, {}), path="/v1/logs")
    answered = ExportLogsServiceResponse.FromString(reply.body).partial_success
    assert (answered.rejected_log_records, "no-job" in answered.error_message) == (1, True)


def token_of(server, key):
    path = "/api/v1/PAILLMTrace/XtraceToken"
    reply = server.raw("GET", path, headers={**bearer(key), "Host": "meter.example:8400"})
    assert reply.status == 200, reply.body
    return reply.json()


def test_a_trace_token_sends_and_does_nothing_else(server):
    answered = token_of(server, server.key("writer", "lab"))
    assert answered["HttpEndpoint"] == "http://meter.example:8400/api/otlp/traces"
    assert answered["GrpcEndpoint"] == ""
    body = request(server, *TREE).SerializeToString()
    for headers in ({"Authentication": answered["Token"]}, bearer(answered["Token"])):
        assert server.raw("POST", "/api/otlp/traces", body, {**PROTOBUF, **headers}).status == 200
        assert server.raw("POST", "/v1/metrics", b"", {**PROTOBUF, **headers}).status == 403
    for path in ("/traces", "/jobs"):
        reply = server.raw("GET", f"/api/jobmeter/v1{path}", headers=bearer(answered["Token"]))
        assert reply.status == 401
    assert server.call("GET", "/traces?job=j", key=server.key("reader", "lab")).json()["traces"] != []


def test_a_trace_token_that_is_changed_expired_or_of_a_revoked_key_is_refused(server):
    key = server.key("writer", "lab")
    token = token_of(server, key)["Token"]
    empty = {**PROTOBUF}

    def status(one):
        return server.raw("POST", "/v1/traces", b"", {**empty, "Authentication": one}).status

    assert status(token) == 200
    for at in (5, len(token) // 2, len(token) - 2):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        assert status(changed) == 401
    for other in ("jmt_", "jmt_" + "x" * 2_000, "jmt_é", token + "A", f"jmt_{key.token}"):
        assert status(other) in {400, 401}
    server.clock.time_ms += LIFE_MS - 1
    assert status(token) == 200
    server.clock.time_ms += 1
    assert status(token) == 401
    server.clock.time_ms -= LIFE_MS
    services = server.application.services
    services.registry.keys.revoke(key.id, server.clock.now_ms())
    services.authenticator.forget(key.id)
    assert status(token) == 401


def test_a_reader_gets_no_trace_token(server):
    reply = server.raw("GET", "/api/v1/PAILLMTrace/XtraceToken", headers={**bearer(server.key("reader")), "Host": "h"})
    assert reply.status == 403


def test_traces_in_the_vendors_form(server):
    send(server, request(server, *TREE))
    path = "/api/v1/PAILLMTrace/TracesDatas"
    filters = json.dumps([{"Key": "ServiceName", "Operator": "startsWith", "Value": "s"}])
    reply = server.raw(
        "GET", f"{path}?Filters={filters.replace(' ', '')}&SortBy=Duration", headers=bearer(server.admin)
    )
    assert (reply.status, reply.json()["TotalCount"]) == (200, 1), reply.body
    trace = json.loads(reply.json()["Traces"][0])
    assert [one["spanName"] for one in trace["spans"]] == ["epoch", "step", "load"]
    assert trace["spans"][1]["attributes"] == {"loss": 0.5}


def test_a_tree_stays_in_its_width_whatever_its_parents_are():
    named = (("a", "b", "x" * 200), ("b", "a", "\x1b[31m" * 50), ("c", "gone", "é🚀" * 80))
    ring = [SpanBody(span=span, parent=parent, name=name) for span, parent, name in named]
    lines = [str(line) for line in iterate_tree(ring, 80)]
    assert len(lines) == 3
    assert all(len(line) <= 80 and "\x1b" not in line for line in lines)
