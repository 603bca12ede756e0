"""``/api/query/last``.

https://opentsdb.net/docs/build/html/api_http/query/last.html
"""

from collections.abc import Generator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobmeter.dialects.base import Context, MissingFieldError, Steps, ask
from jobmeter.dialects.opentsdb.answers import answer
from jobmeter.dialects.opentsdb.metric_text import split_braces, split_tags
from jobmeter.dialects.opentsdb.numbers import format_number
from jobmeter.dialects.opentsdb.request import MOST_QUERIES
from jobmeter.dialects.opentsdb.requests import PRESENT, Count, PostRequest, operation, parse_whole_number
from jobmeter.dialects.opentsdb.series import find_by_metric, find_by_tsuids
from jobmeter.dialects.opentsdb.tsuid import make_tsuid
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.question import Question
from jobmeter.model.time import HOUR, floor_to
from jobmeter.query.series import LastQuestion
from jobmeter.query.tsdb.body import Flag, parse_truth
from jobmeter.query.tsdb.filters import Filter, choose, make_filter
from jobmeter.query.tsdb.tags import Tagged, TagView, tag_series


class LastSubQuery(msgspec.Struct, frozen=True):
    """A sub query in a body."""

    metric: str | None = None
    tags: dict[str, str] | None = None
    tsuids: list[str] | None = None


class LastBody(msgspec.Struct, frozen=True):
    """A body. It has both names of the flag: the page's and the server's."""

    queries: list[LastSubQuery] | None = None
    resolve: Flag = False
    resolveNames: Flag = False  # noqa: N815 - the name on the wire
    backScan: int | str | None = None  # noqa: N815


LastQuery = tuple[Sequence[LastSubQuery], bool, int]
"""Sub queries, a flag to include names, and the hours to look back (0: no limit)."""


@operation("GET, POST /api/query/last", "metrics:read", name="last")
class LastRequest(PostRequest, frozen=True, kw_only=True):
    """The last reading of each series: `[{metric, timestamp (ms), value (a text), tags, tsuid}]`."""

    timeseries: Annotated[str, "`<metric>[{<tag>=<value>,...}]`; may be given several times."] = ""
    tsuids: Annotated[str, "Ids, separated by commas; may be repeated."] = ""
    resolve: Annotated[bool, "Present: results have metric and tags.", PRESENT] = False
    back_scan: Annotated[int, "Hours to look back; 0: no limit.", Meta(le=1_000_000), Count()] = 0
    body: Annotated[
        bytes,
        "With POST: `{queries: [{metric, tags} or {tsuids}], resolve, resolveNames, backScan}`, as in "
        "the query string.",
    ] = b""

    def _steps(self) -> Steps:
        queries, resolve, hours = self._parse_body() if self.posted else self._parse_string()
        if not queries:
            raise MissingFieldError("Missing sub queries", "queries")
        if len(queries) > MOST_QUERIES:
            raise LimitExceededError(f"a query may have at most {MOST_QUERIES} sub queries", "queries")
        since = max(0, floor_to(self.context.now_ms, HOUR) - hours * HOUR) if hours else 0
        results: list[dict[str, Any]] = []
        for one in queries:
            series = yield from _series(one, self.context)
            found = yield from ask(LastQuestion(series=tuple(each.series for each in series), since_ms=since))
            columns = found.columns
            rows = zip(columns.index.tolist(), columns.time.tolist(), columns.value.tolist(), strict=True)
            results += [_result(series[at], time, value, resolve=resolve) for at, time, value in rows]
        return answer(results)

    def _parse_body(self) -> LastQuery:
        body = self.decode_content(LastBody)
        hours = parse_whole_number(body.backScan, "backScan", 0, 1_000_000)
        return body.queries or (), parse_truth(body.resolve) or parse_truth(body.resolveNames), hours

    def _parse_string(self) -> LastQuery:
        queries: list[LastSubQuery] = []
        for name, value in self.call.parameters:
            if name == "timeseries":
                metric, tags, more = split_braces(value, name)
                if more:
                    raise InvalidRequestError("a last query has one pair of braces", name)
                queries.append(LastSubQuery(metric=metric, tags=dict(split_tags(tags, name))))
            elif name == "tsuids":
                queries.append(LastSubQuery(tsuids=value.split(",")))
        return queries, self.resolve, self.back_scan


def _series(one: LastSubQuery, context: Context) -> Generator[Question[Any], Any, list[Tagged]]:
    view = TagView.for_query(list(one.tags or ()), context.project)
    if one.tsuids:
        found = yield from find_by_tsuids([text.strip().upper() for text in one.tsuids])
        return tag_series(found.series, view)
    if not one.metric:
        raise MissingFieldError("Missing the metric or tsuids, provide at least one", "metric")
    found = yield from find_by_metric(one.metric)
    return choose(tag_series(found.series, view), [_filter(tag, value) for tag, value in (one.tags or {}).items()])


def _filter(tag: str, value: str) -> Filter:
    """Return the filter of a tag. Tags of a last query are exact; ``*`` stands for any value."""
    return make_filter(tag, "wildcard" if value == "*" else "literal_or", value, group_by=False)


def _result(one: Tagged, time: int, value: float, *, resolve: bool) -> dict[str, Any]:
    point = {"timestamp": time, "value": format_number(value)}
    if not resolve:
        return {**point, "tsuid": make_tsuid(one.series)}
    return {"metric": one.metric, **point, "tags": one.tags, "tsuid": make_tsuid(one.series)}
