"""Filters of traces and of their spans."""

from enum import StrEnum

import msgspec

from jobmeter.model.question import Question
from jobmeter.model.span import Span, SpanKind, SpanStatus, TracePage

MOST_TRACES = 1_000
"""Most traces of one page."""
MOST_SPANS = 10_000
"""Most spans of one answer."""
PAGE_BYTES = 64 * 2**20
"""Most bytes of the stored spans of one answer."""


class SpanOperator(StrEnum):
    """Comparison of an attribute as text, case-sensitive."""

    EQUALS = "="
    CONTAINS = "contains"
    STARTS_WITH = "startsWith"


class Holder(StrEnum):
    """Holder of the attribute."""

    SPAN = "attributes"
    RESOURCE = "resource"
    EITHER = "either"


class SpanCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Attribute that a span must have. A value that is not a text is compared as JSON."""

    key: str
    value: str
    operator: SpanOperator = SpanOperator.EQUALS
    holder: Holder = Holder.EITHER


class TraceOrder(StrEnum):
    """Sort key of traces."""

    START = "start"
    DURATION = "duration"


class TraceFilter(msgspec.Struct, Question[TracePage], frozen=True, kw_only=True):
    """Filter of traces of some projects (None: all that the caller may see), or of one job in each.

    Traces are evaluated over their spans that began in ``[start_ns, end_ns)``. ``names``, ``services``, ``statuses``,
    ``kinds``, ``replicas``, ``span_ids``, ``conditions``, ``contains`` (a part of the name, in any case),
    ``has_events`` and ``has_message`` select the traces of which a single span matches all; durations are the trace's.
    Sorted by ``order``, then by project and trace; ``after`` continues after a (value, project, trace).
    """

    of_job = True

    projects: frozenset[str] | None = None
    job: str = ""
    traces: frozenset[str] = frozenset()
    start_ns: int | None = None
    end_ns: int | None = None
    names: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    statuses: frozenset[SpanStatus] = frozenset()
    kinds: frozenset[SpanKind] = frozenset()
    replicas: frozenset[str] = frozenset()
    span_ids: frozenset[str] = frozenset()
    conditions: tuple[SpanCondition, ...] = ()
    contains: str = ""
    has_events: bool = False
    has_message: bool = False
    min_ns: int | None = None
    max_ns: int | None = None
    order: TraceOrder = TraceOrder.START
    descending: bool = True
    after: tuple[int, str, str] | None = None
    offset: int = 0
    limit: int = 20
    count: bool = False


class SpanFilter(msgspec.Struct, Question[list[Span]], frozen=True, kw_only=True):
    """Filter of spans of some traces, by trace, start, span, project and job; ``after`` continues after a span."""

    of_job = True

    projects: frozenset[str] | None = None
    traces: frozenset[str] = frozenset()
    after: tuple[str, int, str, str, str] | None = None
    limit: int = 1_000
