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
"""Most bytes of the spans of one answer, as they are stored."""


class Operator(StrEnum):
    """How an attribute is compared, as text, in the case that it has."""

    EQUALS = "="
    CONTAINS = "contains"
    STARTS_WITH = "startsWith"


class Holder(StrEnum):
    """What has the attribute."""

    SPAN = "attributes"
    RESOURCE = "resource"
    EITHER = "either"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute that a span must have. A value that is no text is compared as its JSON."""

    key: str
    value: str
    operator: Operator = Operator.EQUALS
    holder: Holder = Holder.EITHER


class TraceOrder(StrEnum):
    """What traces are sorted by."""

    START = "start"
    DURATION = "duration"


class TraceFilter(msgspec.Struct, Question[TracePage], frozen=True, kw_only=True):
    """Traces of some projects (None: all that the caller may see), or of one job of each of them.

    Traces are evaluated over those of their spans that began in ``[start_ns, end_ns)``. ``names``, ``services``,
    ``statuses``, ``kinds``, ``replicas``, ``span_ids``, ``conditions``, ``contains`` (a part of the name, in any case),
    ``has_events`` and ``has_message`` choose the traces of which one span fits them all; durations are those of the
    trace. Sorted by ``order``, then by project and trace; ``after`` goes on behind a (value, project, trace).
    """

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
    conditions: tuple[Condition, ...] = ()
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
    """The spans of some traces, sorted by trace, start, span, project and job; ``after`` goes on behind one of them."""

    projects: frozenset[str] | None = None
    traces: frozenset[str] = frozenset()
    after: tuple[str, int, str, str, str] | None = None
    limit: int = 1_000
