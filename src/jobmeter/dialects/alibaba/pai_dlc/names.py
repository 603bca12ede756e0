"""PAI-DLC's names for metrics, and ours."""

from jobmeter.model.catalog import map_dialect_names

NAME = "pai-dlc"

METRICS = map_dialect_names(NAME)
"""The metric of each MetricType."""
