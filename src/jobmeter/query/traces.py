"""Questions about traces within the caller's scope."""

from typing import TypeVar

from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.span import Span, TracePage
from jobmeter.model.time import clamp_to_int64
from jobmeter.model.trace_filter import MOST_SPANS, MOST_TRACES, SpanFilter, TraceFilter
from jobmeter.query.meter import Meter
from jobmeter.store.base import Store

_Filter = TypeVar("_Filter", TraceFilter, SpanFilter)


def list_traces(store: Store, question: TraceFilter, scope: Scope, meter: Meter) -> TracePage:
    """Return a page of traces. Raises LimitExceededError (field ``limit``), InvalidRequestError naming the field."""
    if question.limit > MOST_TRACES:
        raise LimitExceededError(f"a page may have {MOST_TRACES} traces, not {question.limit}", "limit")
    for field in ("limit", "offset"):
        if getattr(question, field) < 0:
            raise InvalidRequestError(f"{field} must be 0 or more", field)
    start_ns, end_ns = (None if one is None else clamp_to_int64(one) for one in (question.start_ns, question.end_ns))
    visible = _limit_to_scope(replace(question, start_ns=start_ns, end_ns=end_ns), scope)
    page = (
        TracePage([], 0 if question.count else None)
        if visible is None
        else store.spans.list_traces(visible, meter.make_budget())
    )
    meter.count(sum(one.spans for one in page.traces), None)
    return page


def list_spans(store: Store, question: SpanFilter, scope: Scope, meter: Meter) -> list[Span]:
    """Return the spans of some traces. Raises LimitExceededError (field ``limit``)."""
    if question.limit > MOST_SPANS:
        raise LimitExceededError(f"an answer may have {MOST_SPANS} spans, not {question.limit}", "limit")
    visible = _limit_to_scope(question, scope)
    found = [] if visible is None else store.spans.read(visible, meter.make_budget())
    meter.count(len(found), None)
    return found


def _limit_to_scope(question: _Filter, scope: Scope) -> _Filter | None:
    """Restrict the query to the projects of the scope; None if nothing is left."""
    projects = scope.intersect_projects(question.projects)
    # Spans may contain data that a share token for metrics must not show.
    if scope.job is not None or (projects is not None and not projects):
        return None
    return replace(question, projects=projects)
