"""Spans of traces, as OpenTelemetry has them, with the job and the replica that they are of."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

MOST_BYTES = 2**20
"""Largest span, as it was sent; a larger one is refused."""
MOST_PARTS = 1_024
"""Most attributes, events and links of a span, and attributes of an event or a link, each."""


class SpanKind(StrEnum):
    """What a span is of, https://opentelemetry.io/docs/specs/otel/trace/api/#spankind."""

    UNSPECIFIED = "unspecified"
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class SpanStatus(StrEnum):
    """How it ended."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


KINDS, STATUSES = tuple(SpanKind), tuple(SpanStatus)
"""In the order of their numbers in OTLP."""

Attributes = Mapping[str, Any]
"""Values of JSON by name: bytes are base64, numbers that are not finite texts."""


class SpanScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The library that made a span."""

    name: str = ""
    version: str = ""
    attributes: Attributes = {}


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened during a span. ``dropped``: attributes that the sender left out."""

    time_ns: int
    name: str = ""
    attributes: Attributes = {}
    dropped: int = 0


class SpanLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another span that belongs to this one. ``dropped``: attributes that the sender left out."""

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
    """One span, identified by (project, job, trace, start, span): sent again, it counts once.

    ``trace`` has 32, ``span`` and ``parent`` have 16 lower-case hexadecimal digits; ``parent`` is empty for a root.
    Times are epoch nanoseconds. ``job`` is empty where nothing names one. ``dropped``: attributes, events and links
    that the sender left out.
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
        """When it began."""
        return self.start_ns

    @property
    def order(self) -> tuple[str, int, str, str, str]:
        """What spans are sorted by; two that have it in common are the same span."""
        return (self.trace, self.start_ns, self.span, self.project, self.job)


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in one project, aggregated over its requested spans.

    ``name``, ``service`` and ``job`` are those of the root: the first span without a parent, else the first one. It
    lasts from the first start to the last end.
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
        """How long it lasts."""
        return self.end_ns - self.start_ns


class TracePage(msgspec.Struct, frozen=True):
    """Traces in the requested order; ``total`` match in all (None: not requested)."""

    traces: list[Trace]
    total: int | None = None
