"""Typed calls for traces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobmeter.client.api import Api
from jobmeter.client.searches import Search, drop_none
from jobmeter.model.answers import SpanBody, SpanList, TraceBody, TraceList

PAGE = 500
"""Most traces in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSearch(Search):
    """Search for traces of a job; durations in milliseconds."""

    job: str
    project: str | None = None
    since: str | None = None
    name: str | None = None
    status: str | None = None
    attributes: Sequence[str] = ()
    min_duration: int | None = None
    sort: str = "duration"


def iterate_traces(api: Api, search: TraceSearch, limit: int) -> Iterator[TraceBody]:
    """Iterate over at most ``limit`` traces, fetched page by page. Raises as the calls of ``Api``."""
    cursor: str | None = None
    while limit > 0:
        page = api.get("/traces", search.list_parameters(limit=min(limit, PAGE), cursor=cursor), TraceList)
        yield from page.traces
        limit -= len(page.traces)
        cursor = page.next
        if cursor is None:
            return


def read_spans(api: Api, trace: str, project: str | None, limit: int) -> list[SpanBody]:
    """Read the first ``limit`` spans of a trace, by start. Raises NotFoundError."""
    return api.get(f"/traces/{trace}", drop_none(limit=limit, project=project), SpanList).spans
