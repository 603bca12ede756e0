"""``/v1/traces`` and ``/v1/logs``; the same over gRPC, see ``jobmeter.server.otlp_grpc``."""

from collections import Counter
from typing import Annotated

from jobmeter.dialects.base import Answer, Steps, WriteLines, WriteSpans, ask
from jobmeter.dialects.otlp.forms import JSON, PROTOBUF, MessageRequest, choose_body_encoding, make_estimate, operation
from jobmeter.ingest.otel.telemetry import resolve_lines, resolve_spans
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.series import DEFAULT_PROJECT
from jobmeter.model.time import NS_PER_MS
from jobmeter.wire.otlp import records, spans, telemetry_json
from jobmeter.wire.otlp.answers import encode_response

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


@operation("POST /v1/traces", "traces:write", name="ExportTraces", read_bytes=make_estimate(24))
@operation("POST /api/otlp/traces", "traces:write", name="ExportXtraces", read_bytes=make_estimate(24))
class TraceMessage(MessageRequest, frozen=True, kw_only=True):
    """Stores spans and answers 200 with an `ExportTraceServiceResponse` in the same encoding, when they are durable.

    Its `partial_success` counts the rejected ones, with the reasons. A repeated span counts once. The same over gRPC:
    `Export` of `opentelemetry.proto.collector.trace.v1.TraceService`. A trace token is also accepted, as
    `Authorization: Bearer` or `Authentication`. `/api/otlp/traces` is the path that `GetXtraceToken` of PaiLLMTrace
    names.
    """

    body: Annotated[bytes, "An `ExportTraceServiceRequest`."]

    def _steps(self) -> Steps:
        media = choose_body_encoding(self.call)
        sent = _SPANS[media](self.call.body, MOST_SPANS)
        found, refused = resolve_spans(sent, self.context.project or DEFAULT_PROJECT)
        receipt = Receipt()
        if found or refused:
            receipt = yield from ask(WriteSpans(tuple(found), tuple(sorted(refused.items()))))
        refused.update(receipt.rejected_spans)
        return _answer(refused, "spans", "rejectedSpans", media)


@operation("POST /v1/logs", "traces:write", read_bytes=make_estimate(24))
class ExportLogs(MessageRequest, frozen=True, kw_only=True):
    """Stores log records as log lines of their job; the answer has the form of ExportTraces.

    A line is the body, then the attributes as `key=value`, and the ids of trace and span. The same over gRPC: `Export`
    of `opentelemetry.proto.collector.logs.v1.LogsService`.
    """

    body: Annotated[bytes, "An `ExportLogsServiceRequest`."]

    def _steps(self) -> Steps:
        media, context = choose_body_encoding(self.call), self.context
        sent = _RECORDS[media](self.call.body, context.limits.request_lines)
        found, refused = resolve_lines(sent, context.project or DEFAULT_PROJECT, context.now_ms * NS_PER_MS)
        receipt = Receipt()
        if found or refused:
            receipt = yield from ask(WriteLines(tuple(found), tuple(sorted(refused.items()))))
        refused.update(receipt.rejected_lines)
        return _answer(refused, "log records", "rejectedLogRecords", media)


def _answer(refused: Counter[str], what: str, field: str, media: str) -> Answer:
    reasons = ", ".join(f"{count} for {_HINTS.get(reason, reason)}" for reason, count in sorted(refused.items()))
    message = f"{refused.total()} {what} were refused: {reasons}" if refused else ""
    return Answer(200, encode_response(refused.total(), message, json=media == JSON, field=field), (), media)
