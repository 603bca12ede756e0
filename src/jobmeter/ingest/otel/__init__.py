"""What OpenTelemetry's semantic conventions name, in the catalogue's names: one table a part of the conventions."""

from collections.abc import Mapping, Sequence

from jobmeter.ingest.otel import container, hardware, host
from jobmeter.ingest.otel.rule import Rule

RULES: Mapping[str, Sequence[Rule]] = {**host.RULES, **container.RULES, **hardware.RULES}
"""By the name of the metric; the first rule that fits a series is its."""

__all__ = ["RULES", "Rule"]
