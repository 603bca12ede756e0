"""``/jobs/{job}/metrics``, ``/jobs/{job}/latest`` and ``/nodes/{node}/metrics``."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.dialects.base import Answer, ask
from jobmeter.errors import InvalidRequestError
from jobmeter.kernel import points as kernel
from jobmeter.model.catalog import CATALOG, Aggregate, find
from jobmeter.model.nearest import did_you_mean
from jobmeter.model.time import HOUR, MAX_TIME_MS, TimeRange
from jobmeter.query.defaults import CORE_METRICS, choose_range, choose_step
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.request import (
    By,
    EncodedQuestion,
    Encoder,
    HeadQuestion,
    JobRef,
    Line,
    LineName,
    LinesInColumns,
    MeasuredNamesQuestion,
    MetricQuery,
    MetricResult,
    NodeRef,
    Statistic,
)
from jobmeter.server.native import export
from jobmeter.server.native.arguments import CLUSTER, DEVICE, REPLICA, Arguments, QueryArguments
from jobmeter.server.native.bodies import LatestList, LineBody, MetricNames, MetricsBody, NodeMetricsBody, Timelines
from jobmeter.server.native.endpoint import (
    PROJECT,
    CallContext,
    Endpoint,
    Operation,
    Stream,
    make_job_ref,
    make_node_ref,
)

MAX_METRICS = 100
_JOB_BY = {by.value: by for by in (By.REPLICA, By.DEVICE, By.JOB)}
_NODE_BY = {by.value: by for by in (By.NODE, By.DEVICE)}
_STATISTICS = {one.value: one for one in Statistic}
_AGGREGATES = {one.value: one for one in Aggregate if one is not Aggregate.RATIO}

METRIC = QueryArguments("metric", "A name of the catalogue.", many=True, required=True, example="gpu.utilization")
TIMES = (
    QueryArguments("start", "First moment."),
    QueryArguments("end", "End, exclusive. Default: now, or the end of a finished job."),
    QueryArguments("since", "Instead of start: duration before the end.", example="1h"),
)
_TIME = (
    *TIMES,
    QueryArguments(
        "step", "Length of a bucket. Default: the smallest round length that gives at most 240 buckets.", example="5m"
    ),
)
_HOW = (
    QueryArguments(
        "aggregate",
        "How members are combined: mean, sum, min, max, or whole (of a job: the sum if the unit adds up). "
        "Default: the catalogue's way.",
    ),
    QueryArguments("statistic", "Value of a bucket: mean, min, max, sum, count, first, last, increase. Default: mean."),
    DEVICE,
    QueryArguments(
        "format",
        "json, columns (JSON: values in lists, with shared times given once), csv or parquet. Default: json.",
    ),
)


def check_metrics(given: Sequence[str]) -> tuple[str, ...]:
    """Check the requested metrics. Raises InvalidRequestError (field ``metric``) for too many or an unknown one."""
    if len(given) > MAX_METRICS:
        raise InvalidRequestError(f"at most {MAX_METRICS} metrics can be requested at once, got {len(given)}", "metric")
    for name in given:
        if name not in CATALOG and find(name) is None:
            near = did_you_mean(name, CATALOG)
            raise InvalidRequestError(f"metric {name[:200]!r} is not in the catalogue{near}", "metric")
    return tuple(given)


def _node_range(context: CallContext) -> TimeRange:
    start, end, since = context.arguments.read_times()
    end = min(context.services.clock.now_ms() + 1, MAX_TIME_MS) if end is None else end
    return TimeRange(max(0, end - (since or HOUR)) if start is None else start, end)


class _How(TypedDict):
    """Arguments of a metric query besides its subject and range."""

    metrics: tuple[str, ...]
    by: By
    statistic: Statistic
    aggregate: Aggregate | None
    devices: frozenset[str]


def _parse_options(given: Arguments, by: Mapping[str, By], default: By) -> _How:
    return {
        "metrics": check_metrics(given.read_texts("metric")),
        "by": given.read_choice("by", by, default),
        "statistic": given.read_choice("statistic", _STATISTICS, Statistic.MEAN),
        "aggregate": given.read_choice("aggregate", _AGGREGATES, "mean") if given.read_text("aggregate") else None,
        "devices": frozenset(given.read_texts("device")),
    }


HEADING = "metrics"


@Endpoint(
    "getJobMetrics",
    "GET /jobs/{job}/metrics",
    "metrics:read",
    answer=MetricsBody,
    queries=(
        METRIC,
        *_TIME,
        QueryArguments("by", "One series per replica, device or job. Default: replica."),
        *_HOW,
        REPLICA,
        PROJECT,
    ),
    other_types=("text/csv", "application/vnd.apache.parquet"),
    by_resource=True,
)
def _job_metrics(context: CallContext) -> Operation:
    """Read metrics of a job over a range.

    Buckets are aligned to the epoch, half open and named by their start. A bucket without samples is absent. Default
    range: the whole life of a finished job, the last hour of a running one.
    """
    given = context.arguments
    how, replicas = _parse_options(given, _JOB_BY, By.REPLICA), frozenset(given.read_texts("replica"))
    answer = given.read_choice("format", _FORMATS, "json")
    step_ms, (start, end, since) = given.read_duration("step"), given.read_times()
    job = yield from ask(HeadQuestion(make_job_ref(context)))
    now_ms = context.services.clock.now_ms()
    span = choose_range(job, now_ms, start=start, end=end, since=since, step_ms=step_ms)
    step_ms = step_ms or choose_step(span)
    query = MetricQuery(subject=JobRef(job.id, job.project), range=span, step_ms=step_ms, replicas=replicas, **how)
    if isinstance(answer, _Json):
        body = yield from ask(EncodedQuestion(query, answer.form))
        return Answer(200, body)
    result = yield from ask(query)
    return answer(result, job.id)


@Endpoint(
    "getNodeMetrics",
    "GET /nodes/{node}/metrics",
    "nodes:read",
    answer=NodeMetricsBody,
    queries=(
        METRIC,
        *_TIME,
        QueryArguments("by", "One series per node or device. Default: node."),
        *_HOW,
        CLUSTER,
        PROJECT,
    ),
    other_types=("text/csv", "application/vnd.apache.parquet"),
    tag="nodes",
    by_resource=True,
)
def _node_metrics(context: CallContext) -> Answer | Stream:
    """Read metrics of a node over a range.

    Buckets are as for jobs. Default range: the last hour.
    """
    given = context.arguments
    span, how = _node_range(context), _parse_options(given, _NODE_BY, By.NODE)
    query = MetricQuery(
        subject=make_node_ref(context), range=span, step_ms=given.read_duration("step") or choose_step(span), **how
    )
    answer = given.read_choice("format", _FORMATS, "json")
    return answer(context.ask(query), context.path["node"])


class LinesAsAnswered(NamedTuple):
    """Lines of an answer, with the times that they share if the form lists shared times."""

    lines: list[LineBody]
    timelines: Timelines


def encode_lines(lines: Sequence[Line]) -> LinesAsAnswered:
    """Encode lines as pairs of times and values."""
    points = map(msgspec.Raw, kernel.encode(*_columns(lines)))
    return LinesAsAnswered([LineBody(*name, of) for name, of in zip(_names(lines), points, strict=True)], msgspec.UNSET)


def encode_columns(lines: Sequence[Line]) -> LinesAsAnswered:
    """Encode lines as bare values with shared times: less text, and fewer objects for clients with many points."""
    ends, time, value = _columns(lines)
    spans = list(itertools.pairwise([0, *ends]))
    values = map(msgspec.Raw, kernel.encode(ends, None, value))
    places: dict[bytes, int] = {}
    bodies = [
        LineBody(*name, timeline=places.setdefault(time[start:end].tobytes(), len(places)), values=of)
        for name, (start, end), of in zip(_names(lines), spans, values, strict=True)
    ]
    return LinesAsAnswered(bodies, [np.frombuffer(one, np.int64).tolist() for one in places])


LineBodies = Callable[[Sequence[Line]], LinesAsAnswered]
LINE_FORMATS: Mapping[str, LineBodies] = {"json": encode_lines, "columns": encode_columns}


def _names(lines: Sequence[Line]) -> Sequence[LineName]:
    if isinstance(lines, LinesInColumns):
        return lines.names
    return [LineName(line.metric, line.unit, line.replica, line.node, line.device, line.rank) for line in lines]


def _columns(lines: Sequence[Line]) -> tuple[Sequence[int], NDArray[np.int64], NDArray[np.float64]]:
    """Return the end index of each line, and the times and values of all lines."""
    if isinstance(lines, LinesInColumns):
        return lines.ends, lines.time, lines.value
    if not lines:
        return [], np.empty(0, np.int64), np.empty(0)
    ends = list(itertools.accumulate(len(line.time) for line in lines))
    return ends, np.concatenate([line.time for line in lines]), np.concatenate([line.value for line in lines])


class _Json(msgspec.Struct, frozen=True):
    """JSON answer with the lines in the form of that name."""

    form: str
    lines: LineBodies

    def __call__(self, result: MetricResult, name: str) -> Answer:
        return Answer(200, self.encode(result, name))

    def encode(self, result: MetricResult, name: str) -> bytes:
        """Encode lines of the job or node of that name."""
        query = result.query
        lines, timelines = self.lines(result.lines)
        span = (query.range.start_ms, query.range.end_ms, query.step_ms, query.by, query.statistic)
        body: msgspec.Struct
        if isinstance(query.subject, NodeRef):
            body = NodeMetricsBody(name, *span, lines, result.samples, list(result.tiers), timelines)
        else:
            body = MetricsBody(name, result.project, *span, lines, result.samples, list(result.tiers), timelines)
        return msgspec.json.encode(body)

    def encode_job(self, result: MetricResult) -> bytes:
        """Encode lines of a job; see ``EncodedQuestion``."""
        subject = result.query.subject
        return self.encode(result, subject.id if isinstance(subject, JobRef) else "")


_JSON = {name: _Json(name, lines) for name, lines in LINE_FORMATS.items()}
ENCODERS: Mapping[str, Encoder] = {name: form.encode_job for name, form in _JSON.items()}
"""Encoders of the executor, by form."""
_FORMATS: Mapping[str, Callable[[MetricResult, str], Answer | Stream]] = {
    **_JSON,
    "csv": export.write_csv,
    "parquet": export.write_parquet,
}


@Endpoint(
    "getLatest",
    "GET /jobs/{job}/latest",
    "metrics:read",
    queries=(
        QueryArguments("metric", f"Names of the catalogue. Default: {', '.join(CORE_METRICS)}.", many=True),
        QueryArguments("by", "One value per replica, device or job. Default: replica."),
        PROJECT,
    ),
    by_resource=True,
)
def _read_latest(context: CallContext) -> LatestList:
    """Read the newest values of a job."""
    given = context.arguments
    metrics = check_metrics(given.read_texts("metric"))
    by = given.read_choice("by", _JOB_BY, By.REPLICA)
    return LatestList(context.ask(LatestQuestion(make_job_ref(context), metrics, by)))


@Endpoint("listJobMetrics", "GET /jobs/{job}/metrics/names", "metrics:read", queries=(PROJECT,), by_resource=True)
def _list_measured(context: CallContext) -> MetricNames:
    """List the metrics of a job.

    Those measured over its life, and those derived from them.
    """
    job = context.ask(HeadQuestion(make_job_ref(context)))
    names = context.ask(MeasuredNamesQuestion(JobRef(job.id, job.project)))
    return MetricNames(job.id, job.project, names)
