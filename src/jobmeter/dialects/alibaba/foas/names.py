"""Maps foas' names of metrics and of missing objects to ours."""

from collections.abc import Mapping

from jobmeter.model.catalog import METRICS as CATALOGUE
from jobmeter.model.catalog import MetricScope, map_dialect_names

NAME = "foas"

METRICS: Mapping[str, str] = {name: metric.name for name, metric in map_dialect_names(NAME).items()}
"""Our metric for each name of the vendor's table; both sides use the units of the table."""

CPU_PREFIX = "system.cpu."
CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Modes of ``system.cpu.<mode>``, a node's CPU time in that mode in percent."""
CPU_TIME = "node.cpu.time"

CLUSTER_METRICS: Mapping[str, str] = {
    **METRICS,
    **{f"{CPU_PREFIX}{mode}": CPU_TIME for mode in CPU_MODES},
    **{metric.name: metric.name for metric in CATALOGUE if metric.scope is MetricScope.NODE},
}
"""Our metric for each name of GetClusterMetrics: metrics of jobs, ``system.cpu.*`` and metrics of whole nodes."""

JOB, INSTANCE, RUNNING = "jobName", "instanceId", "running instance"
"""Kinds of missing objects, for NotFoundError."""


def convert_project(name: str) -> str:
    """Return our project of a project name: ``bayes-team`` for their ``bayes_team``."""
    return name.replace("_", "-")
