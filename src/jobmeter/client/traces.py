"""Traces as typed answers of the native API."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from jobmeter.client.api import Api
from jobmeter.client.searches import given

PAGE = 500
"""Most traces in one answer."""


class TraceEntry(msgspec.Struct):
    """A trace in a listing; ``start`` is in epoch milliseconds."""

    trace: str
    project: str = ""
    name: str = ""
    service: str = ""
    job: str = ""
    start: int = 0
    start_ns: str = ""
    duration_ns: int = 0
    spans: int = 0
    errors: int = 0


class SpanEntry(msgspec.Struct):
    """A span of a trace; ``parent`` is empty for a root."""

    span: str
    parent: str = ""
    name: str = ""
    kind: str = ""
    service: str = ""
    job: str = ""
    replica: str = ""
    start_ns: str = "0"
    duration_ns: int = 0
    status: str = ""
    message: str = ""
    attributes: dict[str, Any] = {}


class _Traces(msgspec.Struct):
    traces: list[TraceEntry] = []
    next: str | None = None


class _Spans(msgspec.Struct):
    spans: list[SpanEntry] = []
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSearch:
    """Which traces of a job; durations in milliseconds."""

    job: str
    project: str | None = None
    since: str | None = None
    name: str | None = None
    status: str | None = None
    attributes: tuple[str, ...] = ()
    min_duration: int | None = None
    sort: str = "duration"

    def parameters(self) -> list[tuple[str, str]]:
        """The query parameters of ``GET /traces``."""
        pairs = given(
            job=self.job,
            project=self.project,
            since=self.since,
            name=self.name,
            status=self.status,
            min_duration=self.min_duration,
            sort=self.sort,
        )
        return pairs + [("attribute", one) for one in self.attributes]


def traces(api: Api, search: TraceSearch, limit: int) -> Iterator[TraceEntry]:
    """At most ``limit`` traces, fetched page by page. Raises as the calls of ``Api``."""
    cursor: str | None = None
    while limit > 0:
        pairs = [*search.parameters(), ("limit", str(min(limit, PAGE))), *given(cursor=cursor)]
        page = api.get("/traces", pairs, _Traces)
        yield from page.traces
        limit -= len(page.traces)
        cursor = page.next
        if cursor is None:
            return


def spans(api: Api, trace: str, project: str | None, limit: int) -> list[SpanEntry]:
    """The first ``limit`` spans of a trace, by their start. Raises NotFoundError."""
    return api.get(f"/traces/{trace}", [("limit", str(limit)), *given(project=project)], _Spans).spans
