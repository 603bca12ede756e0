"""``/api/query``.

https://opentsdb.net/docs/build/html/api_http/query/index.html
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from jobmeter.dialects.base import Answer, Context, Steps, ask
from jobmeter.dialects.opentsdb.errors import JSON
from jobmeter.dialects.opentsdb.numbers import encode_number
from jobmeter.dialects.opentsdb.request import (
    OpenTsdbQuery,
    OpenTsdbQueryRequest,
    SubQuery,
    describe_query,
    parse_body,
    parse_string,
)
from jobmeter.dialects.opentsdb.requests import operation
from jobmeter.dialects.opentsdb.series import find_by_metric, find_by_tsuids
from jobmeter.dialects.opentsdb.tsuid import make_tsuid
from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.question import Question
from jobmeter.model.time import MAX_TIME_MS, SECOND, TimeRange
from jobmeter.query.series import BucketsQuestion, SamplesQuestion
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.compute import (
    SeriesGroups,
    compute_margin,
    compute_points,
    group_tagged,
    prepare,
    select_tagged,
)
from jobmeter.query.tsdb.downsample import Fill, reduce_steps
from jobmeter.query.tsdb.tags import Tagged, TagView, tag_series
from jobmeter.wire.opentsdb.names import PROJECT


class Cost(msgspec.Struct):
    """The cost of the answers, for ``statsSummary``."""

    points: int = 0
    samples: int = 0
    milliseconds: int = 0


@operation("GET, POST /api/query", "metrics:read", name="query")
class PointsOfSeries(OpenTsdbQueryRequest, frozen=True):
    """Points of series, joined by group: `[{metric, tags, aggregateTags, dps}]`.

    Values are raw: a counter's reading; `rate` converts it to a rate. `tags` are `host` (the node), `job`, `replica`,
    `attempt` (above 0), `device`, `cluster`, the labels and, for keys without a project, `project`. A query without
    results returns `[]`.
    """

    def _steps(self) -> Steps:
        whole = parse_body(self) if self.posted else parse_string(self)
        cost = Cost()
        results: list[bytes] = []
        for one in whole.queries:
            results += yield from _results(one, whole, self.context, cost)
        if whole.show_summary:
            summary = {"datapoints": cost.points, "rawDatapoints": cost.samples, "storageTime": cost.milliseconds}
            results.append(msgspec.json.encode({"statsSummary": summary}))
        return Answer(200, b"[" + b",".join(results) + b"]", (), JSON)


def _results(
    one: SubQuery, whole: OpenTsdbQuery, context: Context, cost: Cost
) -> Generator[Question[Any], Any, list[bytes]]:
    view = TagView.for_query([each.tag for each in one.filters], context.project)
    series = yield from _series(one, whole, view, cost)
    members = group_tagged(series, one)
    groups = SeriesGroups([at for at, group in enumerate(members) for _ in group])
    order = tuple(each.series for group in members for each in group)
    if not order:
        return []
    columns, stepped = yield from _read(order, one, groups, whole.range, cost)
    columns = prepare(columns, one, whole.range, milliseconds=whole.milliseconds, stepped=stepped)
    # Only series in the answer count for the tags of their group.
    present = iter(np.isin(np.arange(len(order)), columns.index).tolist())
    members = [[each for each in group if next(present)] for group in members]
    found = compute_points(columns, one, groups, whole.range)
    return [_result(members[at], one, whole, *found[at], cost) for at in range(len(members)) if at in found]


def _series(
    one: SubQuery, whole: OpenTsdbQuery, view: TagView, cost: Cost
) -> Generator[Question[Any], Any, list[Tagged]]:
    if one.tsuids:
        found = yield from find_by_tsuids(one.tsuids)
        if len({series.metric for series in found.series}) > 1:
            raise InvalidRequestError("One or more TSUIDs did not share the same metric", "tsuids")
    else:
        found = yield from find_by_metric(one.metric, whole.range.start_ms)
    cost.milliseconds += found.milliseconds
    return select_tagged(tag_series(found.series, view), one, frozenset({PROJECT}))


def _read(
    order: tuple[Any, ...], one: SubQuery, groups: SeriesGroups, span: TimeRange, cost: Cost
) -> Generator[Question[Any], Any, tuple[SeriesColumns, bool]]:
    """Return the samples of the series, or points by step if points suffice."""
    spec, beyond = one.downsample, compute_margin(one, groups)
    start, end = span.start_ms - beyond, span.end_ms + beyond
    if spec is not None:
        start, end = spec.reach(span.start_ms, span.end_ms - 1, beyond)
    around = TimeRange(max(0, start), min(end, MAX_TIME_MS))
    if spec is not None and spec.stepped:
        steps = yield from ask(BucketsQuestion(series=order, range=around, step_ms=spec.interval_ms))
        cost.samples += steps.samples
        cost.milliseconds += steps.milliseconds
        return reduce_steps(steps.columns, spec.function.name), True
    read = yield from ask(SamplesQuestion(series=order, range=around))
    cost.samples += len(read.columns)
    cost.milliseconds += read.milliseconds
    columns = read.columns
    return SeriesColumns(columns.index.astype(np.int64), columns.time, columns.value), False


def _result(
    members: Sequence[Tagged], one: SubQuery, whole: OpenTsdbQuery, time: Int64s, value: Float64s, cost: Cost
) -> bytes:
    """Encode one result in JSON. Points are encoded by hand, because JSON libraries have no form for NaN."""
    tags, aggregated = _tags(members)
    head: dict[str, Any] = {"metric": members[0].metric, "tags": tags, "aggregateTags": aggregated}
    if whole.show_query:
        head["query"] = describe_query(one)
    if whole.show_tsuids:
        head["tsuids"] = sorted(make_tsuid(each.series) for each in members)
    cost.points += len(time)
    null = one.downsample is not None and one.downsample.fill is Fill.NULL
    return msgspec.json.encode(head)[:-1] + b',"dps":' + _dps(time, value, whole, null=null) + b"}"


def _dps(time: Int64s, value: Float64s, whole: OpenTsdbQuery, *, null: bool) -> bytes:
    if not whole.milliseconds:
        # If steps are shorter than a second, the last one of each second is answered.
        time = time // SECOND
        last = np.r_[time[1:] != time[:-1], True]
        time, value = time[last], value[last]
    texts = [encode_number(one, null=null) for one in value.tolist()]
    form = "[%d,%s]" if whole.arrays else '"%d":%s'
    joined = ",".join(form % pair for pair in zip(time.tolist(), texts, strict=True))
    return (f"[{joined}]" if whole.arrays else f"{{{joined}}}").encode()


def _tags(members: Sequence[Tagged]) -> tuple[Mapping[str, str], list[str]]:
    """Return the tags that all members share, and the names of those with several values."""
    first, *others = [each.tags for each in members]
    common = {name for name in first if all(name in tags for tags in others)}
    alike = {name for name in common if all(tags[name] == first[name] for tags in others)}
    return {name: value for name, value in first.items() if name in alike}, sorted(common - alike)
