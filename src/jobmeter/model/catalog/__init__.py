"""The catalogue of metrics: the only place where a name, a unit or a rule of a metric is stated.

Collectors, the pipeline, the planner, dialects, the reference page and the dashboard all read it. ``app.<name>`` (what
a program reports) is open: any name below it is a gauge without a unit. Names that senders of other systems brought
along are stored under their own name with the same rule, below ``external.``.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jobmeter.model.catalog import accelerator, agent, flink, host, replica
from jobmeter.model.catalog.metric import Aggregate, Kind, Metric, Scope

OPEN_PREFIXES = ("app.", "external.")

METRICS: tuple[Metric, ...] = (
    *replica.METRICS,
    *accelerator.METRICS,
    *host.METRICS,
    *flink.METRICS,
    *agent.METRICS,
)

CATALOG: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in METRICS})


def find(name: str) -> Metric | None:
    """The metric of that name; a generated gauge for an open prefix; None for an unknown name."""
    metric = CATALOG.get(name)
    if metric is not None:
        return metric
    if name.startswith(OPEN_PREFIXES) and not name.endswith("."):
        return Metric(name, "", "Reported by a program.", Scope.REPLICA, minimum=None, parts=Aggregate.MEAN)
    return None


def by_dialect_name(dialect: str) -> Mapping[str, Metric]:
    """The metrics that a dialect names, by its own name for them."""
    return MappingProxyType({metric.names[dialect]: metric for metric in METRICS if dialect in metric.names})


def with_derived(stored: Iterable[str]) -> frozenset[str]:
    """Those metrics, and those of the catalogue that can be derived from them."""
    found = set(stored)
    found |= {one.name for one in METRICS if one.rate_of in found}
    pairs = [(one.name, pair) for one in METRICS for pair in (one.ratio, one.difference) if pair]
    return frozenset(found | {name for name, pair in pairs if found.issuperset(pair)})


__all__ = [
    "CATALOG",
    "METRICS",
    "OPEN_PREFIXES",
    "Aggregate",
    "Kind",
    "Metric",
    "Scope",
    "by_dialect_name",
    "find",
    "with_derived",
]
