"""Spans in a dictionary, as the oracle for tests of the engine."""

import threading
from collections.abc import Iterable, Sequence

from jobmeter.model.retention import Retention
from jobmeter.model.series import compute_job_key
from jobmeter.model.span import Span, SpanStatus, Trace, TracePage
from jobmeter.model.trace_filter import Holder, SpanCondition, SpanFilter, SpanOperator, TraceFilter, TraceOrder
from jobmeter.store.base import ReadBudget
from jobmeter.wire.otlp.values import convert_text


class MemorySpans:
    """``jobmeter.store.base.SpanStore`` in memory. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[tuple[str, int, str, str, str], Span] = {}

    def append(self, spans: Iterable[Span], retention: Retention | None = None) -> None:
        """Store spans."""
        with self._lock:
            self._spans.update((span.order, span) for span in spans)

    def all(self) -> list[Span]:
        """Return every span, in order."""
        with self._lock:
            return [self._spans[key] for key in sorted(self._spans)]

    def delete(self, job: int) -> None:
        """Delete the spans of a job key."""
        with self._lock:
            remaining = {
                key: span for key, span in self._spans.items() if compute_job_key(span.project, span.job) != job
            }
            self._spans = remaining

    def list_traces(self, selector: TraceFilter, budget: ReadBudget | None = None) -> TracePage:
        """Return one page of traces."""
        groups: dict[tuple[str, str], list[Span]] = {}
        for span in self.all():
            if _of(span, selector):
                groups.setdefault((span.project, span.trace), []).append(span)
        found = [_trace(own) for own in groups.values() if any(_fits(span, selector) for span in own)]
        found = [one for one in found if _lasts(one, selector)]
        sign = -1 if selector.descending else 1
        found.sort(key=lambda one: (sign * _value(one, selector), one.project, one.trace))
        total = len(found) if selector.count else None
        if selector.after is not None:
            value, *names = selector.after
            behind = (sign * value, *names)
            found = [one for one in found if (sign * _value(one, selector), one.project, one.trace) > behind]
        return TracePage(found[selector.offset : selector.offset + selector.limit], total)

    def read(self, selector: SpanFilter, budget: ReadBudget | None = None) -> list[Span]:
        """Return one page of the spans of some traces."""
        found = [
            span
            for span in self.all()
            if span.trace in selector.traces
            and (selector.projects is None or span.project in selector.projects)
            and (selector.after is None or span.order > selector.after)
        ]
        return found[: selector.limit]


def _of(span: Span, selector: TraceFilter) -> bool:
    return (
        (selector.projects is None or span.project in selector.projects)
        and selector.job in {"", span.job}
        and (not selector.traces or span.trace in selector.traces)
        and (selector.start_ns is None or span.start_ns >= selector.start_ns)
        and (selector.end_ns is None or span.start_ns < selector.end_ns)
    )


def _fits(span: Span, selector: TraceFilter) -> bool:
    chosen = (
        (selector.names, span.name),
        (selector.services, span.service),
        (selector.statuses, span.status),
        (selector.kinds, span.kind),
        (selector.replicas, span.replica),
        (selector.span_ids, span.span),
    )
    return (
        all(not allowed or name in allowed for allowed, name in chosen)
        and selector.contains.lower() in span.name.lower()
        and (not selector.has_events or bool(span.events))
        and (not selector.has_message or bool(span.message))
        and all(_matches(span, condition) for condition in selector.conditions)
    )


def _matches(span: Span, condition: SpanCondition) -> bool:
    holders = {Holder.SPAN: (span.attributes,), Holder.RESOURCE: (span.resource,)}.get(
        condition.holder, (span.attributes, span.resource)
    )
    return any(_compared(convert_text(one[condition.key]), condition) for one in holders if condition.key in one)


def _compared(text: str, condition: SpanCondition) -> bool:
    if condition.operator is SpanOperator.CONTAINS:
        return condition.value in text
    return (
        text.startswith(condition.value) if condition.operator is SpanOperator.STARTS_WITH else text == condition.value
    )


def _trace(spans: Sequence[Span]) -> Trace:
    once = {span.span: span for span in spans}
    root = min(spans, key=lambda span: (bool(span.parent), span.start_ns, span.span))
    return Trace(
        trace=root.trace,
        project=root.project,
        name=root.name,
        service=root.service,
        job=root.job,
        start_ns=min(span.start_ns for span in spans),
        end_ns=max(span.end_ns for span in spans),
        spans=len(once),
        errors=len({span.span for span in spans if span.status is SpanStatus.ERROR}),
    )


def _lasts(trace: Trace, selector: TraceFilter) -> bool:
    longest = selector.max_ns is None or trace.duration_ns <= selector.max_ns
    return longest and (selector.min_ns is None or trace.duration_ns >= selector.min_ns)


def _value(trace: Trace, selector: TraceFilter) -> int:
    return trace.start_ns if selector.order is TraceOrder.START else trace.duration_ns
