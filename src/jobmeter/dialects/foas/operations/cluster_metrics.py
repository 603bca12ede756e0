"""GetClusterMetrics.

The vendor's example (``PublicSample``, section OpenAPI DEMO of the documentation) asks for
``<clusterId>.system.cpu.user`` and ``<clusterId>.system.cpu.iowait``; no list of names was found.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute, rounded
from jobmeter.dialects.foas import metric_json
from jobmeter.dialects.foas.answers import metrics_answer
from jobmeter.dialects.foas.bodies import arguments
from jobmeter.dialects.foas.lines import Drawn, Points, draw
from jobmeter.dialects.foas.metric_json import MetricRequest
from jobmeter.dialects.foas.names import CLUSTER_METRICS, CPU_MODES, CPU_PREFIX
from jobmeter.dialects.foas.operations.instance_metric import METRIC_JSON_TEXT
from jobmeter.model.catalog import Aggregate
from jobmeter.model.question import Question
from jobmeter.model.time import TimeRange
from jobmeter.query.request import By, Line, MetricQuery, NodeRef, Statistic

ACTION = "GetClusterMetrics"
AGGREGATES = {
    Statistic.MEAN: Aggregate.MEAN,
    Statistic.SUM: Aggregate.SUM,
    Statistic.MIN: Aggregate.MIN,
    Statistic.MAX: Aggregate.MAX,
}
"""How the jobs of one node are joined, where a metric of jobs is requested."""


def get_cluster_metrics(call: Call, context: Context) -> Steps:
    """The lines of each query, over the nodes of the cluster."""
    given = arguments(call, context)
    cluster = given.required("clusterId")
    document = metric_json.read(given.required(metric_json.FIELD), f"{cluster}.", CLUSTER_METRICS, context.now_ms)
    lines: list[Drawn] = []
    for sub_query in document.queries:
        series = yield from _series(cluster, sub_query, document.span)
        lines += draw(sub_query, [Points({"node": one.node}, one.time, one.value) for one in series], document.limit)
    return metrics_answer(call, context, ACTION, lines)


def _series(cluster: str, sub_query: MetricRequest, span: TimeRange) -> Generator[Question[Any], Any, Sequence[Line]]:
    """A line for each node."""
    query = MetricQuery(
        subject=NodeRef("", cluster),
        metrics=(CLUSTER_METRICS[sub_query.name],),
        range=span,
        step_ms=sub_query.downsample_ms,
        by=By.NODE,
        statistic=sub_query.downsample,
        aggregate=AGGREGATES[sub_query.aggregator],
    )
    if not sub_query.name.startswith(CPU_PREFIX):
        result = yield from execute(query)
        return result.lines
    # A rate has one value a step, whichever function is requested.
    query = replace(query, statistic=Statistic.MEAN, aggregate=None)
    whole = yield from execute(query)
    part = yield from execute(replace(query, labels=(("mode", sub_query.name.removeprefix(CPU_PREFIX)),)))
    return list(_shares(part.lines, whole.lines))


def _shares(parts: Sequence[Line], wholes: Sequence[Line]) -> Generator[Line]:
    """Percent that each part is of its node's whole, where that is known and not 0."""
    of_node = {line.node: line for line in wholes}
    for part in parts:
        whole = of_node.get(part.node)
        if whole is None:
            continue
        _, mine, theirs = np.intersect1d(part.time, whole.time, assume_unique=True, return_indices=True)
        upper, lower = part.value[mine], whole.value[theirs]
        positive = lower > 0
        percent = [rounded(value) for value in (100.0 * upper[positive] / lower[positive]).tolist()]
        yield replace(part, time=part.time[mine][positive], value=np.array(percent, np.float64), unit="%")


OPERATIONS = (
    Operation(
        name=ACTION,
        action="nodes:read",
        method="POST",
        path="/api/v2/clusters/{clusterId}/metrics",
        answer=get_cluster_metrics,
        parameters=(
            Parameter("clusterId", "path", "The cluster, as its agents name it.", required=True),
            Parameter(
                "metricJson",
                "body",
                f"{METRIC_JSON_TEXT} A `metric` is `<clusterId>.<name>`, or the bare name: "
                f"`{CPU_PREFIX}<mode>` ({', '.join(CPU_MODES)}; percent of a node's CPU time), a metric of nodes from "
                "the catalogue, or one of GetInstanceMetric, over every job on the nodes.",
                required=True,
            ),
        ),
        text="Metrics of the nodes of a cluster, answered as by GetInstanceMetric.",
    ),
)
