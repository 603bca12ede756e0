"""``/traces`` and ``/traces/{trace}``: traces from programs with OpenTelemetry SDKs."""

from hashlib import blake2b
from typing import Any

import msgspec

from jobmeter.access.page_token import seal, unseal
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.answers import SpanBody, SpanEventBody, SpanLinkBody, SpanList, TraceBody, TraceList
from jobmeter.model.span import Span, SpanStatus, Trace
from jobmeter.model.time import NS_PER_MS
from jobmeter.model.trace_filter import MOST_SPANS, MOST_TRACES, SpanCondition, SpanFilter, TraceFilter, TraceOrder
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint

_DIGITS = frozenset("0123456789abcdef")


HEADING = "traces"
_CURSOR = QueryArguments(
    "cursor", "`next` of the previous page: valid for an hour, for the same question of the same key."
)


@Endpoint(
    "listTraces",
    "GET /traces",
    "traces:read",
    queries=(
        QueryArguments("job", "Only spans of this job.", example="train-7"),
        QueryArguments("name", "A span has one of these names.", many=True, example="step"),
        QueryArguments("contains", "A span's name contains this text, ignoring case."),
        QueryArguments("service", "A span belongs to one of these services (`service.name`).", many=True),
        QueryArguments("replica", "A span belongs to one of these replicas.", many=True, example="worker-0"),
        QueryArguments("status", "A span has this status: unset, ok, error.", many=True, example="error"),
        QueryArguments(
            "attribute", "A span or its resource has this attribute: `KEY=VALUE`.", many=True, example="rank=0"
        ),
        QueryArguments("min_duration", "The trace lasts at least this number of milliseconds.", type="integer"),
        QueryArguments("max_duration", "The trace lasts at most this number of milliseconds.", type="integer"),
        QueryArguments("start", "Spans that began at this time or later."),
        QueryArguments("end", "Spans that began before this time."),
        QueryArguments("since", "Instead of start: duration before the end, or before now.", example="1h"),
        QueryArguments("sort", "start or duration. Default: start."),
        QueryArguments("order", "asc or desc. Default: desc."),
        QueryArguments("limit", f"Traces in the answer, 0 to {MOST_TRACES - 1}. Default: 20.", type="integer"),
        QueryArguments("count", "true adds the number of matches. Default: false."),
        _CURSOR,
        PROJECT,
    ),
)
def _list(context: CallContext) -> TraceList:
    """List traces of a job, or all traces.

    The figures of a trace cover its spans that began in the range. `name`, `contains`, `service`, `replica`, `status`
    and `attribute` select traces in which a single span matches all of them.
    """
    given = context.arguments
    limit = given.read_integer("limit", 20, 0, MOST_TRACES - 1)
    order = TraceOrder(given.read_choice("sort", {one.value: one.value for one in TraceOrder}, TraceOrder.START))
    question = _filter(context, order, limit + 1 if limit else 0)
    page = context.ask(question)
    shown, more = page.traces[:limit], len(page.traces) > limit
    cursor = None
    if more:
        last = shown[-1]
        value = last.start_ns if order is TraceOrder.START else last.duration_ns
        cursor = _cursor_of(context, [value, last.project, last.trace])
    return TraceList(traces=[_trace(one) for one in shown], next=cursor, total=page.total)


def _filter(context: CallContext, order: TraceOrder, limit: int) -> TraceFilter:
    given = context.arguments
    projects = context.projects
    job = given.read_text("job")
    if job:
        head = context.ask(HeadQuestion(JobRef(job, context.project)))
        job, projects = head.id, frozenset({head.project})
    start, end = context.read_span()
    at = _place_of(context)
    return TraceFilter(
        projects=projects,
        job=job,
        start_ns=None if start is None else start * NS_PER_MS,
        end_ns=None if end is None else end * NS_PER_MS,
        names=frozenset(given.read_texts("name")),
        services=frozenset(given.read_texts("service")),
        replicas=frozenset(given.read_texts("replica")),
        statuses=given.read_choices("status", SpanStatus),
        conditions=tuple(_condition(text) for text in given.read_texts("attribute")),
        contains=given.read_text("contains"),
        min_ns=_length(context, "min_duration"),
        max_ns=_length(context, "max_duration"),
        order=order,
        descending=given.is_descending("desc"),
        after=None if at is None else (at[0], at[1], at[2]),
        limit=limit,
        count=given.read_flag("count"),
    )


def _condition(text: str) -> SpanCondition:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidRequestError(f"attribute {text[:100]!r} is not KEY=VALUE", "attribute")
    return SpanCondition(key=key, value=value)


def _length(context: CallContext, name: str) -> int | None:
    """Convert a number of milliseconds to nanoseconds."""
    text = context.arguments.read_text(name)
    return context.arguments.read_integer(name, 0, 0, 10**12) * NS_PER_MS if text else None


@Endpoint(
    "getTrace",
    "GET /traces/{trace}",
    "traces:read",
    queries=(
        QueryArguments("limit", f"Spans in the answer, 1 to {MOST_SPANS - 1}. Default: 1000.", type="integer"),
        _CURSOR,
        PROJECT,
    ),
)
def _spans(context: CallContext) -> SpanList:
    """List the spans of a trace.

    Sorted by their start. A trace without any span that the key may see gives 404.
    """
    trace = context.path["trace"].lower()
    if len(trace) != 32 or not _DIGITS.issuperset(trace):
        raise InvalidRequestError(f"trace {trace[:64]!r} is not 32 hexadecimal digits", "trace")
    limit = context.arguments.read_integer("limit", 1_000, 1, MOST_SPANS - 1)
    at = _place_of(context)
    projects = context.projects
    after = None if at is None else (at[0], at[1], at[2], at[3], at[4])
    question = SpanFilter(projects=projects, traces=frozenset({trace}), after=after, limit=limit + 1)
    found = context.ask(question)
    if not found and at is None:
        raise NotFoundError(f"there is no trace {trace}", "trace", trace)
    shown = found[:limit]
    cursor = _cursor_of(context, list(shown[-1].order)) if len(found) > limit else None
    return SpanList(trace=trace, spans=[_span(one) for one in shown], next=cursor)


def _trace(one: Trace) -> TraceBody:
    return copy_fields(TraceBody, one, start=one.start_ns // NS_PER_MS, start_ns=str(one.start_ns))


def _span(one: Span) -> SpanBody:
    attributes, events, links = one.dropped
    return copy_fields(
        SpanBody,
        one,
        start=one.start_ns // NS_PER_MS,
        start_ns=str(one.start_ns),
        duration_ns=one.end_ns - one.start_ns,
        scope=one.scope.name,
        scope_version=one.scope.version,
        events=[copy_fields(SpanEventBody, event, time_ns=str(event.time_ns)) for event in one.events],
        links=[copy_fields(SpanLinkBody, link) for link in one.links],
        dropped_attributes=attributes,
        dropped_events=events,
        dropped_links=links,
    )


def _cursor_of(context: CallContext, at: list[Any]) -> str:
    """Make the cursor that continues after a place."""
    services = context.services
    return seal(services.vault, _question_hash(context), msgspec.msgpack.encode(at), services.clock.now_ms())


def _place_of(context: CallContext) -> list[Any] | None:
    """Read the place after which the call continues; None for the first page.

    Raises InvalidRequestError (field ``cursor``) for a cursor that is invalid, belongs to another question or has
    expired.
    """
    text, services = context.arguments.read_text("cursor"), context.services
    if not text:
        return None
    place = unseal(services.vault, _question_hash(context), text, services.clock.now_ms(), "cursor")
    return msgspec.msgpack.decode(place, type=list[Any])


def _question_hash(context: CallContext) -> bytes:
    """Hash the question, without cursor and limit, and the caller."""
    given = sorted(pair for pair in context.call.parameters if pair[0] not in {"cursor", "limit"})
    text = msgspec.json.encode([context.principal.id, sorted(context.path.items()), given])
    return blake2b(text, digest_size=8).digest()
