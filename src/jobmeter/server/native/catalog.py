"""``/catalog``: all metrics."""

from collections.abc import Mapping

import msgspec

from jobmeter.model.catalog import METRICS, Aggregate, Kind, Metric, MetricGroup, MetricScope, NumberFormat
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import CallContext, Endpoint


class MetricBody(msgspec.Struct, frozen=True):
    """A metric: its title, its unit as stored and as read, and its name in each dialect."""

    name: str
    title: str
    group: MetricGroup
    format: NumberFormat
    unit: str
    read_unit: str
    kind: Kind
    scope: MetricScope
    over: Aggregate
    on_node: Aggregate
    parts: Aggregate
    text: str
    names: Mapping[str, str]


class CatalogBody(msgspec.Struct, frozen=True):
    """All metrics of the catalogue."""

    metrics: list[MetricBody]


def _body(metric: Metric) -> MetricBody:
    return copy_fields(
        MetricBody,
        metric,
        read_unit=metric.answer_unit,
        on_node=metric.on_node or metric.over,
        names=dict(metric.names),
    )


HEADING = "metrics"


@Endpoint("getCatalog", "GET /catalog", "catalog:read")
def _catalog(context: CallContext) -> CatalogBody:  # noqa: ARG001 - the shape of every work function
    """List all metrics.

    Each has a name, title, group, unit, kind, scope, and its name in each dialect. `format` is the form of an answer:
    `ratio` (0 to 1, shown in percent), `number` (a plain number), or `quantity` (a number with a unit).
    """
    return CatalogBody([_body(metric) for metric in METRICS])
