"""Catalogue of metrics: the only place that states a metric's name, unit or rules.

Collectors, the pipeline, the planner, dialects, the reference page and the dashboard all read it. ``app.<name>``
(values reported by programs) is open: any name below it is a gauge without a unit. Metrics from other systems are
stored under their own names below ``external.``, with the same rule. Special values (NaN, infinities, stale markers)
are stored below ``special.``; see ``model.special``.
"""

from collections.abc import Iterable, Mapping

from jobmeter.model.catalog import accelerator, agent, flink, host, replica
from jobmeter.model.catalog.metric import Aggregate, Display, Kind, Metric, MetricGroup, MetricScope, NumberFormat
from jobmeter.model.series import SPECIAL

OPEN_PREFIXES = ("app.", "external.", SPECIAL)

METRICS: tuple[Metric, ...] = (*replica.METRICS, *accelerator.METRICS, *host.METRICS, *flink.METRICS, *agent.METRICS)

CATALOG: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def find(name: str) -> Metric | None:
    """Find a metric by name: for an open prefix a generated gauge; None for an unknown name."""
    metric = CATALOG.get(name)
    if metric is not None:
        return metric
    if name.startswith(OPEN_PREFIXES) and not name.endswith("."):
        return Metric(name, "", "Reported by a program.", MetricScope.REPLICA, minimum=None, parts=Aggregate.MEAN)
    return None


def list_shown(views: Display) -> tuple[str, ...]:
    """Return the names of the metrics that people see in any of these places, in the order of the rows."""
    return tuple(metric.name for metric in METRICS if metric.views & views)


def map_dialect_names(dialect: str) -> Mapping[str, Metric]:
    """Map a dialect's own metric names to metrics."""
    return {metric.names[dialect]: metric for metric in METRICS if dialect in metric.names}


def add_derived(stored: Iterable[str]) -> frozenset[str]:
    """Add the metrics of the catalogue that can be derived from the stored ones."""
    found = set(stored)
    found |= {one.name for one in METRICS if one.rate_of in found}
    pairs = [(one.name, pair) for one in METRICS for pair in (one.ratio, one.difference) if pair]
    return frozenset(found | {name for name, pair in pairs if found.issuperset(pair)})


__all__ = [
    "CATALOG",
    "METRICS",
    "OPEN_PREFIXES",
    "Aggregate",
    "Display",
    "Kind",
    "Metric",
    "MetricGroup",
    "MetricScope",
    "NumberFormat",
    "add_derived",
    "find",
    "list_shown",
    "map_dialect_names",
]
