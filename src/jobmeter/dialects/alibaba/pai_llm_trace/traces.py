"""ListTracesDatas: traces with their spans."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, json_text, operation
from jobmeter.dialects.alibaba.pai_llm_trace.otel import compatible, short, without_embeddings
from jobmeter.dialects.base import Steps, execute
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.span import Span, SpanStatus
from jobmeter.model.time import DAY, MINUTE, NS_PER_MS
from jobmeter.model.trace_filter import MOST_SPANS, Condition, Holder, Operator, SpanFilter, TraceFilter, TraceOrder

_MOST_PAGE, _MOST_PAGES = 100, 10_000
_REDUCED = {"REMOVE_EMBEDDING": "embedding", "ROOT_ONLY": "root"}
_EXACT = {
    "LlmAppName": (Holder.RESOURCE, "service.app.name"),
    "EndUserId": (Holder.SPAN, "service.app.user_id"),
    "OwnerId": (Holder.RESOURCE, "service.owner.id"),
    "OwnerSubId": (Holder.RESOURCE, "service.owner.sub_id"),
    "SessionId": (Holder.SPAN, "gen_ai.session.id"),
}
_KEYS = {
    "serviceid": (Holder.RESOURCE, "service.id"),
    "servicename": (Holder.RESOURCE, "service.name"),
    "input": (Holder.SPAN, "input.value"),
    "output": (Holder.SPAN, "output.value"),
    "spantype": (Holder.SPAN, "gen_ai.span.kind"),
}
_OPERATORS = {one.value.lower(): one for one in Operator}
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


class _Filter(msgspec.Struct, rename="pascal"):
    key: str
    operator: str = "="
    value: str = ""


@operation(
    "GET /api/v1/PAILLMTrace/TracesDatas",
    "traces:read",
    in_query("MinTime", "`YYYY-MM-DD` or `YYYY-MM-DD HH:mm:ss`, UTC. Default: two days ago."),
    in_query("MaxTime", "The same. Default: in ten minutes."),
    in_query("PageNumber", "From 1. Default: 1."),
    in_query("PageSize", "1 to 100. Default: 20."),
    in_query("SortBy", "`StartTime` or `Duration`. Default: StartTime."),
    in_query("SortOrder", "`ASC` or `DESC`. Default: DESC."),
    in_query("TraceIds", "Comma separated."),
    in_query("SpanIds", "Comma separated: traces that have one of these spans."),
    in_query("SpanName", "The exact name of a span."),
    in_query("MinDuration", "Seconds."),
    in_query("MaxDuration", "Seconds."),
    in_query("HasEvents", "`True`: traces of which a span has events."),
    in_query("HasStatusMessage", "`True`: traces of which a span has a status message."),
    *(in_query(name, f"The exact value of `{holder.value}` `{key}`.") for name, (holder, key) in _EXACT.items()),
    in_query("Filters", "JSON: `[{Key, Operator, Value}]`."),
    in_query("OpentelemetryCompatible", "`True`: each trace is OpenTelemetry's `TracesData`."),
    in_query("TraceReduceMethod", "`REMOVE_EMBEDDING`, `ROOT_ONLY` or nothing."),
)
def list_traces_datas(arguments: Arguments) -> Steps:
    """Lists traces that the key may see, each with its spans as JSON text: `{Traces, TotalCount, RequestId}`."""
    wanted, plain = _trace_filter(arguments), not arguments.flag("OpentelemetryCompatible")
    reduced = arguments.choice("TraceReduceMethod", _REDUCED, "")
    page = yield from execute(wanted)
    ids = frozenset(one.trace for one in page.traces)
    found: list[Span] = []
    if ids:
        projects = frozenset(one.project for one in page.traces)
        found = yield from execute(SpanFilter(projects=projects, traces=ids, limit=MOST_SPANS))
    if len(found) == MOST_SPANS:
        raise LimitExceededError(f"these traces have {MOST_SPANS} spans and more: ask for fewer", "PageSize")
    own: dict[tuple[str, str], list[Span]] = {}
    for span in found:
        own.setdefault((span.project, span.trace), []).append(span)
    form = short if plain else compatible
    spans = [own[one.project, one.trace] for one in page.traces if (one.project, one.trace) in own]
    traces = [json_text(form(_reduced(members, reduced))) for members in spans]
    return answer({"Traces": traces, "TotalCount": page.total or 0}, arguments)


def _trace_filter(arguments: Arguments) -> TraceFilter:
    size = arguments.integer("PageSize", 20, 1, _MOST_PAGE)
    names = {arguments.text("SpanName")} - {""}
    conditions = [
        Condition(key=key, value=arguments.text(name), holder=holder)
        for name, (holder, key) in _EXACT.items()
        if arguments.text(name)
    ]
    statuses: set[SpanStatus] = set()
    for one in _filters(arguments):
        key, operator = one.key.lower(), _operator(one)
        if key in _KEYS:
            conditions.append(Condition(key=_KEYS[key][1], value=one.value, operator=operator, holder=_KEYS[key][0]))
        elif key == "status" and operator is Operator.EQUALS:
            statuses.add(_status(one.value))
        elif key == "spanname" and operator is Operator.EQUALS:
            names.add(one.value)
        else:
            raise InvalidRequestError(
                f"Filters: {one.key[:64]!r} with {one.operator[:20]!r} is not supported", "Filters"
            )
    return TraceFilter(
        traces=frozenset(one.lower() for one in arguments.names("TraceIds")),
        span_ids=frozenset(one.lower() for one in arguments.names("SpanIds")),
        start_ns=_moment(arguments, "MinTime", arguments.context.now_ms - 2 * DAY) * NS_PER_MS,
        end_ns=_moment(arguments, "MaxTime", arguments.context.now_ms + 10 * MINUTE) * NS_PER_MS,
        names=frozenset(names),
        statuses=frozenset(statuses),
        conditions=tuple(conditions),
        has_events=arguments.flag("HasEvents"),
        has_message=arguments.flag("HasStatusMessage"),
        min_ns=_seconds(arguments, "MinDuration"),
        max_ns=_seconds(arguments, "MaxDuration"),
        order=arguments.choice(
            "SortBy", {"StartTime": TraceOrder.START, "Duration": TraceOrder.DURATION}, TraceOrder.START
        ),
        descending=arguments.choice("SortOrder", {"ASC": False, "DESC": True}, default=True),
        offset=(arguments.integer("PageNumber", 1, 1, _MOST_PAGES) - 1) * size,
        limit=size,
        count=True,
    )


def _filters(arguments: Arguments) -> list[_Filter]:
    text = arguments.text("Filters")
    try:
        return msgspec.json.decode(text, type=list[_Filter]) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError("Filters is not a JSON list of {Key, Operator, Value}", "Filters") from error


def _operator(given: _Filter) -> Operator:
    found = _OPERATORS.get(given.operator.lower())
    if found is None:
        raise InvalidRequestError(f"Filters: operator {given.operator[:20]!r} is unknown", "Filters")
    return found


def _status(text: str) -> SpanStatus:
    try:
        return SpanStatus(text.lower().removeprefix("status_code_"))
    except ValueError as error:
        raise InvalidRequestError(f"Filters: status {text[:20]!r} is not one of UNSET, OK, ERROR", "Filters") from error


def _moment(arguments: Arguments, name: str, default: int) -> int:
    """Return epoch milliseconds of a day or a second in UTC."""
    text = arguments.text(name)
    if not text:
        return default
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            continue
    raise InvalidRequestError(f"{name} {text[:64]!r} is not YYYY-MM-DD or YYYY-MM-DD HH:mm:ss", name)


def _seconds(arguments: Arguments, name: str) -> int | None:
    """Return nanoseconds of a number of seconds."""
    text = arguments.text(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidRequestError(f"{name} {text[:40]!r} is not a number of seconds", name) from error
    if not 0 <= value <= 10**9:
        raise InvalidRequestError(f"{name} is not from 0 to 10^9 seconds", name)
    return round(value * 10**9)


def _reduced(spans: Sequence[Span], how: str) -> Sequence[Span]:
    if how == "root":
        spans = [min(spans, key=lambda span: (bool(span.parent), span.start_ns, span.span))]
    return [replace(one, attributes=without_embeddings(one.attributes)) for one in spans] if how else spans
