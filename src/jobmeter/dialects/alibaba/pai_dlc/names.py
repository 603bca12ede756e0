"""PAI-DLC's names for metrics, and ours."""

from jobmeter.model.catalog import by_dialect_name

NAME = "pai-dlc"

METRICS = by_dialect_name(NAME)
"""The metric of each MetricType."""
