"""GetInstanceMetric and GetClusterMetrics.

https://help.aliyun.com/document_detail/107111.html. The vendor's example of GetClusterMetrics (``PublicSample``,
section OpenAPI DEMO of the documentation) requests ``<clusterId>.system.cpu.user`` and
``<clusterId>.system.cpu.iowait``; no list of names was found.
"""

from collections.abc import Generator, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, Lookup
from jobmeter.dialects.alibaba.foas import metric_json
from jobmeter.dialects.alibaba.foas.answers import make_metrics_answer
from jobmeter.dialects.alibaba.foas.instances import CURRENT, find_running
from jobmeter.dialects.alibaba.foas.lines import Drawn, draw
from jobmeter.dialects.alibaba.foas.metric_json import MetricRequest
from jobmeter.dialects.alibaba.foas.names import CLUSTER_METRICS, CPU_MODES, CPU_PREFIX, METRICS
from jobmeter.dialects.alibaba.foas.requests import JOB_PATH, LARGEST_ID, FlinkJobRequest, operation
from jobmeter.dialects.alibaba.foas.series import read_lines, tag_series
from jobmeter.dialects.base import Steps, ask, round_digits
from jobmeter.dialects.base.request import QUERY
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import Aggregate
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.query.request import By, Line, MetricQuery, NodeRef, Statistic
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.compute import MARGIN_MS


@operation(f"POST {JOB_PATH}/metric", "metrics:read", by_resource=True)
class GetInstanceMetric(FlinkJobRequest, frozen=True, kw_only=True):
    """Returns metrics of a running instance: `{"requestId", "metrics": [{"metricName", "dps", "summary", "tags"}]}`.

    `dps` maps seconds since the epoch to numbers, both as texts, `summary` is the mean of the points. The typed SDKs
    (Java, Go, .NET) get `{"RequestId", "Metrics": {"Metric": [{"MetricName", ...}]}}`. With `Accept: application/xml`
    the same as XML, elements named by seconds as in the document; with `text/xml` well-formed, `<_1574247000>`. Values
    are in the units of the vendor's table. Fails for an instance that does not run.
    """

    instance_id: Annotated[
        int,
        QUERY,
        "`-1`: the running one of a streaming job; else an instance.",
        Meta(ge=CURRENT, le=LARGEST_ID),
    ] = CURRENT
    metric_json: Annotated[
        str,
        f"{metric_json.TEXT} A `metric` is `blink.<projectName>.<jobName>.<name>`, or the bare name.",
    ]

    def _steps(self) -> Steps:
        project, name = self.project_name, self.job_name
        prefix = f"blink.{project}.{name}."
        document = metric_json.read(self.metric_json, prefix, METRICS, self.context.now_ms)
        job = yield from find_running(project, name, self.instance_id)
        lines = yield from read_lines(job, document, METRICS)
        return make_metrics_answer(self, "GetInstanceMetric", lines)


@operation("POST /api/v2/clusters/{clusterId}/metrics", "nodes:read", by_resource=True)
class GetClusterMetrics(AlibabaRequest, frozen=True, kw_only=True, rename="camel"):
    """Returns metrics of the nodes of a cluster, in the form of GetInstanceMetric."""

    cluster_id: Annotated[str, "The cluster, as its agents name it."]
    metric_json: Annotated[
        str,
        f"{metric_json.TEXT} A `metric` is `<clusterId>.<name>`, or the bare name: "
        f"`{CPU_PREFIX}<mode>` ({', '.join(CPU_MODES)}; percent of a node's CPU time), a metric of nodes from "
        "the catalogue, or one of GetInstanceMetric, over every job on the nodes.",
    ]

    def _steps(self) -> Steps:
        cluster, now_ms = self.cluster_id, self.context.now_ms
        document = metric_json.read(self.metric_json, f"{cluster}.", CLUSTER_METRICS, now_ms)
        lines: list[Drawn] = []
        for at, query in enumerate(document.queries):
            statistic = _statistic(query, f"queries[{at}].downsample")
            start = max(0, document.span.start_ms - (MARGIN_MS if query.rate is not None else 0))
            nodes = yield from _nodes(cluster, query, TimeRange(start, document.span.end_ms), statistic)
            series = [tag_series(Series("", "", one.node and cluster, one.node)) for one in nodes]
            lines += draw(query, series, _columns(nodes), document.span, document.limit)
        return make_metrics_answer(self, "GetClusterMetrics", lines)


_STATISTICS = {
    "avg": Statistic.MEAN,
    "max": Statistic.MAX,
    "min": Statistic.MIN,
    "sum": Statistic.SUM,
    "count": Statistic.COUNT,
    "first": Statistic.FIRST,
    "last": Statistic.LAST,
}
"""Functions of a downsample of nodes: a node's values are joined from its devices and jobs."""
_JOINED = {"avg": Aggregate.MEAN, "max": Aggregate.MAX, "min": Aggregate.MIN, "sum": Aggregate.SUM}


def _statistic(query: MetricRequest, where: str) -> Statistic:
    name, field = query.downsample.function.name, f"{metric_json.FIELD}.{where}"
    if name not in _STATISTICS or not query.downsample.interval_ms or query.downsample.unit is not None:
        raise InvalidRequestError(
            f"{field} {query.downsample.text[:64]!r} is not possible for a cluster: take an interval such as 20s, and "
            f"one of {', '.join(_STATISTICS)}",
            field,
        )
    return _STATISTICS[name]


def _nodes(cluster: str, query: MetricRequest, span: TimeRange, statistic: Statistic) -> Lookup[Sequence[Line]]:
    """Return a line for each node."""
    question = MetricQuery(
        subject=NodeRef("", cluster),
        metrics=(CLUSTER_METRICS[query.name],),
        range=span,
        step_ms=query.downsample.interval_ms,
        by=By.NODE,
        statistic=statistic,
        aggregate=_JOINED.get(query.aggregator),
    )
    if not query.name.startswith(CPU_PREFIX):
        result = yield from ask(question)
        return result.lines
    # A rate has one value for each step, for every function.
    question = replace(question, statistic=Statistic.MEAN, aggregate=None)
    whole = yield from ask(question)
    part = yield from ask(replace(question, labels=(("mode", query.name.removeprefix(CPU_PREFIX)),)))
    return list(_shares(part.lines, whole.lines))


def _columns(lines: Sequence[Line]) -> SeriesColumns:
    """Return the points of the lines, by their position."""
    if not lines:
        return SeriesColumns.make_empty()
    index = np.repeat(np.arange(len(lines)), [len(line.time) for line in lines])
    time, value = (np.concatenate([getattr(line, name) for line in lines]) for name in ("time", "value"))
    return SeriesColumns(index, time, value)


def _shares(parts: Sequence[Line], wholes: Sequence[Line]) -> Generator[Line]:
    """Yield each part in percent of its node's whole, if the whole is known and above 0."""
    of_node = {line.node: line for line in wholes}
    for part in parts:
        whole = of_node.get(part.node)
        if whole is None:
            continue
        _, mine, theirs = np.intersect1d(part.time, whole.time, assume_unique=True, return_indices=True)
        upper, lower = part.value[mine], whole.value[theirs]
        positive = lower > 0
        percent = [round_digits(value) for value in (100.0 * upper[positive] / lower[positive]).tolist()]
        yield replace(part, time=part.time[mine][positive], value=np.array(percent, np.float64), unit="%")
