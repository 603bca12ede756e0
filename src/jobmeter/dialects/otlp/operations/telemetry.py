"""``/v1/traces`` and ``/v1/logs``; the same over gRPC, see ``jobmeter.server.otlp_grpc``."""

from collections import Counter

from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, Steps, WriteLines, WriteSpans, execute
from jobmeter.dialects.otlp.forms import JSON, PROTOBUF, encoding_of_body, operation
from jobmeter.ingest.otel.telemetry import owned_lines, owned_spans
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.series import DEFAULT_PROJECT
from jobmeter.model.time import NS_PER_MS
from jobmeter.wire.otlp import records, spans, telemetry_json
from jobmeter.wire.otlp.answers import response

MOST_SPANS = 100_000
"""Most spans in one request."""
_SPANS = {PROTOBUF: spans.decode, JSON: telemetry_json.decode_spans}
_RECORDS = {PROTOBUF: records.decode, JSON: telemetry_json.decode_records}
_HINTS = {
    "no-job": "no-job (the resource names neither a job nor a service)",
    "too-large": "too-large (more than 1 MiB)",
    "too-many-parts": "too-many-parts (more than 1,024 attributes, events or links)",
    "resource-too-large": "resource-too-large (more than 32 KiB of attributes)",
}


def export_traces(call: Call, context: Context) -> Steps:
    """Store spans; the answer is sent when accepted ones are durable."""
    media = encoding_of_body(call)
    sent = _SPANS[media](call.body, MOST_SPANS)
    found, refused = owned_spans(sent, context.project or DEFAULT_PROJECT)
    receipt = Receipt()
    if found or refused:
        receipt = yield from execute(WriteSpans(tuple(found), tuple(sorted(refused.items()))))
    refused.update(receipt.rejected_spans)
    return _answer(refused, "spans", "rejectedSpans", media)


def export_logs(call: Call, context: Context) -> Steps:
    """Store log records as log lines; the answer is sent when accepted ones are durable."""
    media = encoding_of_body(call)
    sent = _RECORDS[media](call.body, context.limits.request_lines)
    found, refused = owned_lines(sent, context.project or DEFAULT_PROJECT, context.now_ms * NS_PER_MS)
    receipt = Receipt()
    if found or refused:
        receipt = yield from execute(WriteLines(tuple(found), tuple(sorted(refused.items()))))
    refused.update(receipt.rejected_lines)
    return _answer(refused, "log records", "rejectedLogRecords", media)


def _answer(refused: Counter[str], what: str, field: str, media: str) -> Answer:
    reasons = ", ".join(f"{count} for {_HINTS.get(reason, reason)}" for reason, count in sorted(refused.items()))
    message = f"{refused.total()} {what} were refused: {reasons}" if refused else ""
    return Answer(200, response(refused.total(), message, json=media == JSON, field=field), (), media)


TRACES = operation(
    "ExportTraces",
    "/v1/traces",
    export_traces,
    "ExportTraceServiceRequest",
    "Stores spans and answers 200 with an `ExportTraceServiceResponse` in the same encoding, when they are durable. "
    "Its `partial_success` counts the rejected ones, with the reasons. A repeated span counts once. The same over "
    "gRPC: `Export` of `opentelemetry.proto.collector.trace.v1.TraceService`. A trace token is also accepted, as "
    "`Authorization: Bearer` or `Authentication`.",
)
LOGS = operation(
    "ExportLogs",
    "/v1/logs",
    export_logs,
    "ExportLogsServiceRequest",
    "Stores log records as log lines of their job: the body, then the attributes as `key=value`, and the ids of trace "
    "and span. The answer has the form of ExportTraces. The same over gRPC: `Export` of "
    "`opentelemetry.proto.collector.logs.v1.LogsService`.",
)
OPERATIONS = (
    TRACES,
    LOGS,
    replace(
        TRACES,
        name="ExportXtraces",
        path="/api/otlp/traces",
        text="ExportTraces at the path that `GetXtraceToken` of PaiLLMTrace names.",
    ),
)
