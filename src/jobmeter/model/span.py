"""Spans of OpenTelemetry traces, with their job and replica."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

MOST_BYTES = 2**20
"""Largest span as sent; a larger one is refused."""
MOST_PARTS = 1_024
"""Most attributes, events and links of a span, and attributes of an event or a link, each."""


class SpanKind(StrEnum):
    """Kind of a span, https://opentelemetry.io/docs/specs/otel/trace/api/#spankind."""

    UNSPECIFIED = "unspecified"
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class SpanStatus(StrEnum):
    """Outcome of a span."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


KINDS, STATUSES = tuple(SpanKind), tuple(SpanStatus)
"""Kinds and statuses in the order of their numbers in OTLP."""

Attributes = Mapping[str, Any]
"""JSON values by name: bytes are base64, non-finite numbers are texts."""


class SpanScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Library that made a span."""

    name: str = ""
    version: str = ""
    attributes: Attributes = {}


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Event in a span. ``dropped``: attributes that the sender left out."""

    time_ns: int
    name: str = ""
    attributes: Attributes = {}
    dropped: int = 0


class SpanLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Link to another span. ``dropped``: attributes that the sender left out."""

    trace: str
    span: str
    state: str = ""
    attributes: Attributes = {}
    flags: int = 0
    dropped: int = 0


class SpanDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a span that filters do not use, except attributes. For ``dropped`` see ``Span``."""

    attributes: Attributes = {}
    resource: Attributes = {}
    scope: SpanScope = SpanScope()
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    state: str = ""
    flags: int = 0
    dropped: tuple[int, int, int] = (0, 0, 0)


class Span(SpanDetail, frozen=True, kw_only=True, omit_defaults=True):
    """Span, identified by (project, job, trace, start, span): a repeated span counts once.

    ``trace`` has 32, ``span`` and ``parent`` have 16 lower-case hexadecimal digits; ``parent`` is empty for a root.
    Times are epoch nanoseconds. ``job`` is empty if unknown. ``dropped``: attributes, events and links that the sender
    left out.
    """

    trace: str
    span: str
    parent: str = ""
    name: str = ""
    kind: SpanKind = SpanKind.UNSPECIFIED
    start_ns: int
    end_ns: int
    status: SpanStatus = SpanStatus.UNSET
    message: str = ""
    project: str = "default"
    job: str = ""
    replica: str = ""
    attempt: int = 0
    node: str = ""
    service: str = ""

    @property
    def time_ns(self) -> int:
        """Start of the span."""
        return self.start_ns

    @property
    def order(self) -> tuple[str, int, str, str, str]:
        """Sort key of spans; spans with equal keys are identical."""
        return (self.trace, self.start_ns, self.span, self.project, self.job)


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Trace in one project, aggregated over its requested spans.

    ``name``, ``service`` and ``job`` come from the root: the first span without a parent, else the first span. It lasts
    from the first start to the last end.
    """

    trace: str
    project: str
    name: str
    service: str
    job: str
    start_ns: int
    end_ns: int
    spans: int
    errors: int

    @property
    def duration_ns(self) -> int:
        """Duration of the trace."""
        return self.end_ns - self.start_ns


class TracePage(msgspec.Struct, frozen=True):
    """Traces in the requested order; ``total`` match in all (None: not requested)."""

    traces: list[Trace]
    total: int | None = None
