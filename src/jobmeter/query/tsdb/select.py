"""Select the series of a query, and group them into lines."""

from collections.abc import Sequence

from jobmeter.query.tsdb.compute import PointQuery
from jobmeter.query.tsdb.filters import choose
from jobmeter.query.tsdb.functions import NONE
from jobmeter.query.tsdb.tags import Tagged


def select_tagged(series: Sequence[Tagged], query: PointQuery, implied: frozenset[str]) -> list[Tagged]:
    """Return the series that match the query's filters and, if required, have no other tags than ``implied`` ones.

    Raises InvalidRequestError for an invalid pattern.
    """
    matching = choose(series, query.filters)
    if not query.explicit_tags:
        return matching
    keys = {one.tag for one in query.filters if one.kind != "not_key"} - implied
    return [one for one in matching if set(one.tags) - implied == keys]


def group_tagged(series: Sequence[Tagged], query: PointQuery) -> list[list[Tagged]]:
    """Group the series by values of the tags to group by, in the order of their tags."""
    if query.aggregator == NONE:
        return [[one] for one in series]
    keys = sorted({one.tag for one in query.filters if one.group_by})
    groups: dict[tuple[str | None, ...], list[Tagged]] = {}
    for one in series:
        groups.setdefault(tuple(one.tag(key) for key in keys), []).append(one)
    return [groups[values] for values in sorted(groups, key=lambda values: [value or "" for value in values])]
