"""Runs in the environment of OpenTelemetry's SDK: exports given spans with its own exporter, configured by variables.

It reads {"way", "variables": {...}, "traces": [{"resource": {...}, "spans": [{"name", "start_ns", "end_ns",
"attributes", "events", "message"}]}]} from a line of stdin. The first span of a trace is the root of the others. It
prints a line with the exporter's result for each span, and the ids.
"""

import json
import os
import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode, set_span_in_context


def _make_exporter(way):
    if way == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return OTLPSpanExporter()


def _trace(given, exporter):
    provider = TracerProvider(resource=Resource.create(given["resource"]))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    spans, context = [], None
    for one in given["spans"]:
        span = tracer.start_span(
            one["name"], context=context, start_time=one["start_ns"], attributes=one.get("attributes", {})
        )
        for event in one.get("events", ()):
            span.add_event(event, timestamp=one["start_ns"])
        if one.get("message"):
            span.set_status(Status(StatusCode.ERROR, one["message"]))
        context = context or set_span_in_context(span)
        spans.append((span, one["end_ns"]))
    for span, end_ns in reversed(spans):
        span.end(end_ns)
    contexts = [span.get_span_context() for span, _ in spans]
    return {
        "trace": format(contexts[0].trace_id, "032x"),
        "spans": [format(one.span_id, "016x") for one in contexts],
    }


def _send(asked):
    os.environ.update(asked["variables"])
    exporter, exported = _make_exporter(asked["way"]), []
    export, end = exporter.export, exporter.shutdown

    def note(spans):
        result = export(spans)
        exported.append(result.name)
        return result

    exporter.export, exporter.shutdown = note, lambda *_: None
    traces = [_trace(one, exporter) for one in asked["traces"]]
    end()
    return {"traces": traces, "exported": exported}


for line in sys.stdin:
    print(json.dumps(_send(json.loads(line))), flush=True)
