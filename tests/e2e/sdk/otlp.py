"""Runs in the environment of OpenTelemetry's own SDK: a program with metrics, configured by OTEL_* alone.

``otlp.py http/protobuf|grpc ROUNDS`` prints as JSON whether each export succeeded, and the log messages.
"""

import json
import logging
import sys

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader

if sys.argv[1] == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
else:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

LOGGED: list[str] = []
EXPORTED: list[bool] = []


class Log(logging.Handler):
    def emit(self, record):
        LOGGED.append(record.getMessage())


class Exporter(OTLPMetricExporter):  # type: ignore[misc]
    def export(self, *arguments, **more):
        result = super().export(*arguments, **more)
        EXPORTED.append(result is MetricExportResult.SUCCESS)
        return result


def main(rounds: int) -> None:
    logging.getLogger("opentelemetry").addHandler(Log())
    temperatures = iter([20.5, 21.25, 22.0, 23.5])
    provider = MeterProvider([PeriodicExportingMetricReader(Exporter(), export_interval_millis=3_600_000)])
    meter = provider.get_meter("trainer", "1.0")
    steps = meter.create_counter("steps", "{step}")
    queue = meter.create_up_down_counter("queue")
    step_time = meter.create_histogram("step.time", "s", explicit_bucket_boundaries_advisory=[0.1, 0.5])
    loss = meter.create_gauge("app.loss")
    meter.create_observable_gauge(
        "room.temperature", callbacks=[lambda _: [Observation(next(temperatures), {"room": "ü 1"})]], unit="Cel"
    )
    for turn in range(rounds):
        steps.add(10, {"rank": "0"})
        steps.add(5, {"rank": "1"})
        queue.add(3 if turn == 0 else -4)
        for seconds in (0.05, 0.3, 0.3, 2.0):
            step_time.record(seconds)
        loss.set(1.0 / (turn + 1))
        provider.force_flush()
    provider.shutdown()
    print(json.dumps({"exported": EXPORTED, "logged": LOGGED}))


main(int(sys.argv[2]))
