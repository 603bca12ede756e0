"""Maps the metrics of OpenTelemetry's semantic conventions to the catalogue: one table a part of the conventions."""

from jobmeter.ingest.otel import container, hardware, host
from jobmeter.ingest.rule import Rules

RULES: Rules = {**host.RULES, **container.RULES, **hardware.RULES}
