"""Runs in the environment of OpenTelemetry's SDK: exports spans and log records, configured by variables."""

import json
import logging
import sys

from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

if sys.argv[1] == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

results: list[str] = []
exporter = OTLPSpanExporter()
export = exporter.export


def exported(spans):
    result = export(spans)
    results.append(result.name)
    return result


exporter.export = exported
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("trainer", "1.2")
with (
    tracer.start_as_current_span("epoch", kind=SpanKind.SERVER, attributes={"rank": 0, "lr": 0.5, "on": True}) as epoch,
    tracer.start_as_current_span("step", links=[Link(epoch.get_span_context(), {"why": "a"})]) as step,
):
    step.add_event("checkpoint", {"bytes": 7, "names": ["a", "b"]})
    with tracer.start_as_current_span("load") as load:
        load.set_status(Status(StatusCode.ERROR, "no such file"))
trace_id = format(epoch.get_span_context().trace_id, "032x")
if len(sys.argv) > 2:
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
    logger = logging.getLogger("train")
    logger.addHandler(LoggingHandler(logger_provider=logs))
    with trace.use_span(epoch):
        logger.error("loss is nan", extra={"step": 3})
    logs.shutdown()
provider.shutdown()
json.dump({"trace": trace_id, "exported": results}, sys.stdout)
