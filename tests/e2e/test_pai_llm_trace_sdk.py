"""PaiLLMTrace with the vendor's own SDK: a token, spans that OpenTelemetry's SDK sends with it, and traces."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from jobmeter.access.principal import Principal, Role
from jobmeter.access.trace import LIFE_MS, issue
from jobmeter.access.vault import Vault
from jobmeter.settings import load
from tests.e2e.alibaba import CURRENT
from tests.e2e.conversation import converse, has_package
from tests.e2e.test_opentelemetry_sdk import PYTHON, WAYS, otlp_server
from tests.support.certificates import make
from tests.support.proxy import tls_proxy
from tests.support.waiting import wait_until

SDK = Path(__file__).parent / "sdk"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of OpenTelemetry's SDK is not built: make sdk"),
    pytest.mark.skipif(
        not has_package(CURRENT, "alibabacloud_paillmtrace20240311"),
        reason="no PaiLLMTrace SDK in .venvs/alibaba: make sdk",
    ),
]
SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def receiver(tmp_path_factory):
    with otlp_server(tmp_path_factory.mktemp("llm")) as made:
        yield made


def key(receiver, role="writer", project="lab"):
    made = receiver.server.request("POST", "/keys", {"name": role, "role": role, "project": project or None})
    return made.json()


def ask(receiver, pair, *asks, **reached):
    """Return the SDK's answers to (operation, request, further fields). ``reached`` contains fields of its Config."""
    config = {name: pair[name] for name in ("access_key_id", "access_key_secret")}
    config |= reached or {"endpoint": receiver.server.url.partition("://")[2].strip("/"), "protocol": "http"}
    given = [{"config": config, "operation": name, "request": request, **more} for name, request, more in asks]
    return converse(CURRENT, SDK / "pai_llm_trace.py", given)


def token(receiver, pair, **more):
    (answer,) = ask(receiver, pair, ("get_xtrace_token", None, more))
    return answer["body"]


def send(way, granted, *traces):
    """Send spans with OpenTelemetry's SDK and the credentials of GetXtraceToken."""
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": granted["GrpcEndpoint" if way == "grpc" else "HttpEndpoint"],
        "OTEL_EXPORTER_OTLP_HEADERS": f"authentication={granted['Token']}",
    }
    return converse(PYTHON, SDK / "otlp_spans.py", {"way": way, "variables": variables, "traces": traces})


NOW = int(time.time()) * SECOND_NS


def span(name, ago, seconds, **more):
    start = NOW - ago * SECOND_NS
    return {"name": name, "start_ns": start, "end_ns": start + int(seconds * SECOND_NS), **more}


CHAT = {
    "resource": {
        "service.name": "chat", "service.app.name": "assistant", "service.id": "s-1", "service.owner.id": "o1",
        "service.owner.sub_id": "o2",
    },
    "spans": [
        span("chain", 600, 9, attributes={"service.app.user_id": "u1", "gen_ai.session.id": "se1"}),
        span("retrieve", 599, 2, attributes={"embedding.vector": [0.25, 0.5], "gen_ai.span.kind": "RETRIEVER"}),
        span(
            "llm", 596, 5, attributes={"input.value": "why is it slow", "output.value": "the reader", "tokens": 7},
            events=["first token"],
        ),
    ],
}  # fmt: skip
FAILED = {
    "resource": {"service.name": "batch"},
    "spans": [span("run", 300, 1), span("call", 300, 0.5, message="no quota")],
}
OLD = {"resource": {"service.name": "batch"}, "spans": [span("nightly", 90_000, 60)]}


@pytest.fixture(scope="module")
def sent(receiver):
    """Send three traces of the key's project, and return them by name as OpenTelemetry's SDK knows them."""
    pair = key(receiver)
    made = send("http/protobuf", token(receiver, pair), CHAT, FAILED, OLD)
    assert made["exported"] == ["SUCCESS"] * 6
    return pair, dict(zip(("chat", "failed", "old"), made["traces"], strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_spans_are_sent_with_the_token_just_got(receiver, way, asynchronous):
    pair = key(receiver)
    granted = token(receiver, pair, **{"async": asynchronous})
    assert granted["HttpEndpoint"].endswith("/api/otlp/traces")
    assert granted["GrpcEndpoint"] == receiver.endpoints["grpc"]
    assert not {"Code", "Message"} & granted.keys()
    trace = {"resource": {"service.name": "a"}, "spans": [span("one", 10, 1)]}
    made = send(way, granted, trace)
    assert made["exported"] == ["SUCCESS"]
    day = datetime.fromtimestamp(NOW // SECOND_NS, UTC).date().isoformat()
    request = {"MinTime": day, "TraceIds": [made["traces"][0]["trace"]]}
    (answer,) = ask(receiver, pair, ("list_traces_datas", request, {"async": asynchronous}))
    (found,) = map(json.loads, answer["body"]["Traces"])
    assert (found["traceId"], [one["spanName"] for one in found["spans"]]) == (made["traces"][0]["trace"], ["one"])


def _day(ago):
    return datetime.fromtimestamp(NOW // SECOND_NS - ago, UTC).strftime("%Y-%m-%d %H:%M:%S")


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["failed", "chat", "old"]),
    ({"SortOrder": "ASC"}, ["old", "chat", "failed"]),
    ({"SortBy": "Duration"}, ["old", "chat", "failed"]),
    ({"MinTime": 1000}, ["failed", "chat"]),
    ({"MaxTime": 1000}, ["old"]),
    ({"MinDuration": 5.0}, ["chat", "old"]),
    ({"MinDuration": 5.0, "MaxDuration": 10.0}, ["chat"]),
    ({"HasEvents": True}, ["chat"]),
    ({"HasStatusMessage": True}, ["failed"]),
    ({"SpanName": "call"}, ["failed"]),
    ({"LlmAppName": "assistant"}, ["chat"]),
    ({"EndUserId": "u1", "SessionId": "se1"}, ["chat"]),
    ({"EndUserId": "u2"}, []),
    ({"OwnerId": "o1", "OwnerSubId": "o2"}, ["chat"]),
    ({"OwnerSubId": "o1"}, []),
    ({"Filters": [{"Key": "ServiceName", "Operator": "=", "Value": "batch"}]}, ["failed", "old"]),
    ({"Filters": [{"Key": "Input", "Operator": "contains", "Value": "slow"}]}, ["chat"]),
    ({"Filters": [{"Key": "Output", "Operator": "startsWith", "Value": "the"}]}, ["chat"]),
    ({"Filters": [{"Key": "SpanType", "Operator": "=", "Value": "LLM"}]}, []),
    ({"Filters": [{"Key": "Status", "Operator": "=", "Value": "ERROR"}]}, ["failed"]),
]


def filtering(filters, traces):
    """Return a request with these filters. Its times are seconds before now."""
    limits = {field: _day(ago) for field, ago in filters.items() if field.endswith("Time")}
    ids = [one["trace"] for one in traces.values()]
    return {"MinTime": _day(100_000), "TraceIds": ids, **filters, **limits}


@pytest.fixture(scope="module")
def filtered(receiver, sent):
    """Return the answers to ``FILTERS`` in order, from one run of the SDK."""
    pair, traces = sent
    return ask(receiver, pair, *(("list_traces_datas", filtering(filters, traces), {}) for filters, _ in FILTERS))


@pytest.mark.parametrize("number", range(len(FILTERS)), ids=lambda number: json.dumps(FILTERS[number][0])[:60])
def test_filters(sent, filtered, number):
    _, traces = sent
    filters, expected = FILTERS[number]
    ids = {one["trace"]: name for name, one in traces.items()}
    body = filtered[number]["body"]
    found = [ids[json.loads(one)["traceId"]] for one in body["Traces"]]
    in_order = {"SortBy", "SortOrder"} & filters.keys() or not filters
    assert (found if in_order else sorted(found)) == (expected if in_order else sorted(expected))
    assert body["TotalCount"] == len(expected)


def test_pages_ids_of_spans_and_reduced_forms(receiver, sent):
    pair, traces = sent
    base = {"MinTime": _day(100_000), "TraceIds": [one["trace"] for one in traces.values()]}
    chat = {**base, "SpanIds": [traces["chat"]["spans"][1]]}
    first, second, none, by_span, root, spared, proto = ask(
        receiver, pair,
        *(("list_traces_datas", {**base, "PageSize": 2, "PageNumber": number}, {}) for number in (1, 2, 3)),
        ("list_traces_datas", chat, {}),
        ("list_traces_datas", {**chat, "TraceReduceMethod": "ROOT_ONLY"}, {}),
        ("list_traces_datas", {**chat, "TraceReduceMethod": "REMOVE_EMBEDDING"}, {}),
        ("list_traces_datas", {**chat, "OpentelemetryCompatible": True}, {}),
    )  # fmt: skip
    assert [len(one["body"].get("Traces", ())) for one in (first, second, none)] == [2, 1, 0]
    assert {one["body"]["TotalCount"] for one in (first, second, none)} == {3}

    def spans(answer):
        (trace,) = map(json.loads, answer["body"]["Traces"])
        return {one["spanName"]: one for one in trace["spans"]}

    whole = spans(by_span)
    assert list(whole) == ["chain", "retrieve", "llm"]
    assert whole["llm"]["parentSpanId"] == whole["chain"]["spanId"] == traces["chat"]["spans"][0]
    assert whole["llm"]["attributes"]["tokens"] == 7
    assert whole["llm"]["duration"] == 5 * SECOND_NS
    assert [one["name"] for one in whole["llm"]["events"]] == ["first token"]
    assert list(spans(root)) == ["chain"]
    assert whole["retrieve"]["attributes"]["embedding.vector"] == [0.25, 0.5]
    assert spans(spared)["retrieve"]["attributes"]["embedding.vector"] == []
    read = json_format.Parse(proto["body"]["Traces"][0], TracesData())
    found = [one for part in read.resource_spans for scope in part.scope_spans for one in scope.spans]
    assert [one.span_id.hex() for one in found] == traces["chat"]["spans"]


def test_refusals_are_those_that_the_sdk_understands(receiver, sent):
    pair, _ = sent
    reader, other = key(receiver, "reader"), key(receiver, "reader", "other")
    wrong = {**pair, "access_key_secret": "x"}
    (refused,) = ask(receiver, reader, ("get_xtrace_token", None, {}))
    assert (refused["error"], refused["code"], _status(refused)) == ("ClientException", "NoPermission", 403)
    assert "reader" in refused["message"]
    (unsigned,) = ask(receiver, wrong, ("get_xtrace_token", None, {}))
    assert (unsigned["error"], unsigned["code"]) == ("ClientException", "SignatureDoesNotMatch")
    (nothing,) = ask(receiver, other, ("list_traces_datas", {"MinTime": _day(100_000)}, {}))
    assert nothing["body"]["TotalCount"] == 0
    for name, request in (
        ("MinTime", {"MinTime": "yesterday"}),
        ("PageSize", {"MinTime": _day(10), "PageSize": 101}),
        ("SortBy", {"MinTime": _day(10), "SortBy": "Cost"}),
        ("Filters", {"MinTime": _day(10), "Filters": [{"Key": "Cost", "Operator": "=", "Value": "1"}]}),
    ):
        (answer,) = ask(receiver, pair, ("list_traces_datas", request, {}))
        assert (answer["error"], answer["code"]) == ("ClientException", "InvalidParameter")
        assert name in answer["message"]


def _status(answer):
    return answer.get("status_code") or answer.get("statusCode")


def _issued(receiver, pair, ago_ms):
    """Return a server token of that age."""
    vault = Vault.load(load(data=receiver.server.data), make=False)
    who = Principal(
        id=pair["id"], name="w", role=Role.WRITER, project="lab", access_key_id=pair["access_key_id"]
    )  # fmt: skip
    return issue(vault, who, int(time.time() * 1000) - ago_ms)[0]


@pytest.mark.parametrize("way", WAYS)
def test_expired_and_forged_tokens_send_nothing(receiver, way):
    pair = key(receiver)
    granted = token(receiver, pair)
    trace = {"resource": {"service.name": "b"}, "spans": [span(f"no {way}", 10, 1)]}
    good = granted["Token"]
    at = len(good) // 2
    forged = good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :]
    for refused in (_issued(receiver, pair, LIFE_MS + 1000), forged, f"jmt_{pair['token']}"):
        made = send(way, {**granted, "Token": refused}, trace)
        assert made["exported"] == ["FAILURE"]
        (answer,) = ask(receiver, pair, ("list_traces_datas", {"MinTime": _day(1000), "SpanName": f"no {way}"}, {}))
        assert answer["body"]["TotalCount"] == 0
    made = send(way, {**granted, "Token": _issued(receiver, pair, LIFE_MS // 2)}, trace)
    assert made["exported"] == ["SUCCESS"]
    subprocess.run(
        [sys.executable, "-m", "jobmeter", "key", "revoke", pair["id"], "--data", str(receiver.server.data)], check=True
    )
    # The server caches the facts of a key for a second.
    wait_until(lambda: send(way, granted, trace)["exported"] == ["FAILURE"], "the end of the key")


@pytest.mark.parametrize("form", ["http://{}", "http://{}/"])
def test_an_endpoint_with_a_scheme_is_one(receiver, form):
    endpoint = form.format(f"127.0.0.1:{receiver.server.port}")
    for asynchronous in (False, True):
        (answer,) = ask(receiver, key(receiver), ("get_xtrace_token", None, {"async": asynchronous}), endpoint=endpoint)
        assert answer["body"]["HttpEndpoint"] == f"{receiver.endpoints['http/protobuf']}/api/otlp/traces"


def test_behind_a_proxy_with_tls_the_endpoints_have_tls(tmp_path):
    """An http:// endpoint would make exporters send the token in clear text."""
    certificates = make(tmp_path)
    trusting = {"JOBMETER_TRUSTED_PROXIES": "127.0.0.1"}
    with otlp_server(tmp_path, environment=trusting) as receiver:
        port = receiver.server.port
        with tls_proxy(port, certificates.certificate, certificates.key) as proxied:
            reached = {"endpoint": f"127.0.0.1:{proxied}", "protocol": "https", "ca": str(certificates.ca)}
            (answer,) = ask(receiver, key(receiver), ("get_xtrace_token", None, {}), **reached)
        granted = answer["body"]
        assert granted["HttpEndpoint"] == f"https://127.0.0.1:{proxied}/api/otlp/traces"
        assert granted["GrpcEndpoint"] == receiver.endpoints["grpc"].replace("http://", "https://")
        (direct,) = ask(receiver, key(receiver), ("get_xtrace_token", None, {}))
        assert direct["body"]["HttpEndpoint"] == f"http://127.0.0.1:{port}/api/otlp/traces"
