"""``/api/search/lookup``.

https://opentsdb.net/docs/build/html/api_http/search/lookup.html
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from jobmeter.dialects.base import MissingFieldError, Steps, ask
from jobmeter.dialects.opentsdb.answers import answer
from jobmeter.dialects.opentsdb.metric_text import split_braces, split_tags
from jobmeter.dialects.opentsdb.requests import Count, PostRequest, operation, parse_whole_number
from jobmeter.dialects.opentsdb.series import find_by_metric
from jobmeter.dialects.opentsdb.tsuid import make_tsuid
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.query.series import SeriesQuestion
from jobmeter.query.tsdb.tags import Tagged, TagView, tag_series

DEFAULT_LIMIT = 25
MOST = 100_000
MOST_PAIRS = 64
ANY = "*"


class PairBody(msgspec.Struct, frozen=True):
    """A tag in a body and in an answer."""

    key: str = ANY
    value: str = ANY


class LookupBody(msgspec.Struct, frozen=True):
    """A body. ``useMeta`` and ``startIndex`` have no effect."""

    metric: str | None = None
    tags: list[PairBody] | None = None
    limit: int | str | None = None


@operation("GET, POST /api/search/lookup", "metrics:read", name="lookup")
class LookupRequest(PostRequest, frozen=True, kw_only=True):
    """The series that match, with their tags.

    `{type, metric, tags, limit, time, results: [{tags, metric, tsuid}], startIndex, totalResults}`.
    """

    m: Annotated[str, "Required: `<metric>{<tag>=<value>,...}`; `*` stands for any tag or value."] = ""
    limit: Annotated[int, "Most series of the answer.", Meta(le=MOST), Count()] = DEFAULT_LIMIT
    use_meta: Annotated[str, "Accepted: there is one table of series."] = ""
    body: Annotated[bytes, "With POST: `{metric, tags: [{key, value}], limit, useMeta}`; no metric, or `*`: any."] = b""

    def _steps(self) -> Steps:
        request = self.decode_content(LookupBody) if self.posted else self._parse_string()
        pairs = request.tags or []
        metric = "" if request.metric in {None, ANY} else request.metric or ""
        if not metric and not pairs:
            raise MissingFieldError("Missing metric and tags. Please supply at least one value.", "m")
        if len(pairs) > MOST_PAIRS:
            raise LimitExceededError(f"a lookup may have at most {MOST_PAIRS} tags", "tags")
        limit = parse_whole_number(request.limit, "limit", DEFAULT_LIMIT, MOST)
        if metric:
            found = yield from find_by_metric(metric)
        else:
            found = yield from ask(SeriesQuestion())
        view = TagView.for_query([pair.key for pair in pairs], self.context.project)
        matching = [one for one in tag_series(found.series, view) if _matches(one, pairs)]
        return answer(
            {
                "type": "LOOKUP",
                "metric": metric or ANY,
                "tags": pairs,
                "limit": limit,
                "time": found.milliseconds,
                "results": [
                    {"tags": one.tags, "metric": one.metric, "tsuid": make_tsuid(one.series)}
                    for one in matching[:limit]
                ],
                "startIndex": 0,
                "totalResults": len(matching),
            }
        )

    def _parse_string(self) -> LookupBody:
        if not self.m:
            raise MissingFieldError("Missing parameter <code>m</code>", "m")
        metric, tags, more = split_braces(self.m, "m")
        if more:
            raise InvalidRequestError("a lookup has one pair of braces", "m")
        return LookupBody(metric, [PairBody(key, value) for key, value in split_tags(tags)], self.limit)


def _matches(one: Tagged, pairs: Sequence[PairBody]) -> bool:
    """Return True if each key has one of its requested values; a value without a key may have any key."""
    by_key: dict[str, set[str]] = {}
    for pair in pairs:
        by_key.setdefault(pair.key, set()).add(pair.value)
    for key, values in by_key.items():
        if key == ANY:
            if not values & {*one.tags.values(), ANY}:
                return False
            continue
        value = one.tag(key)
        if value is None or not (ANY in values or value in values):
            return False
    return True
