"""ListTracesDatas: traces with their spans."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, JsonText, answer, dump_json, operation
from jobmeter.dialects.alibaba.pai_llm_trace.otel import convert_trace, describe_trace, drop_embeddings
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice, ParameterKind, ParameterReader, ParameterSlot, Time
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.grouping import group_pairs
from jobmeter.model.span import Span, SpanStatus
from jobmeter.model.time import DAY, MINUTE, NS_PER_MS
from jobmeter.model.trace_filter import (
    MOST_SPANS,
    Holder,
    SpanCondition,
    SpanFilter,
    SpanOperator,
    TraceFilter,
    TraceOrder,
)

_REDUCED = {"REMOVE_EMBEDDING": "embedding", "ROOT_ONLY": "root"}
_EXACT = {
    "llm_app_name": (Holder.RESOURCE, "service.app.name"),
    "end_user_id": (Holder.SPAN, "service.app.user_id"),
    "owner_id": (Holder.RESOURCE, "service.owner.id"),
    "owner_sub_id": (Holder.RESOURCE, "service.owner.sub_id"),
    "session_id": (Holder.SPAN, "gen_ai.session.id"),
}
_KEYS = {
    "serviceid": (Holder.RESOURCE, "service.id"),
    "servicename": (Holder.RESOURCE, "service.name"),
    "input": (Holder.SPAN, "input.value"),
    "output": (Holder.SPAN, "output.value"),
    "spantype": (Holder.SPAN, "gen_ai.span.kind"),
}
_OPERATORS = {one.value.lower(): one for one in SpanOperator}
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


class _Filter(msgspec.Struct, rename="pascal"):
    key: str
    operator: str = "="
    value: str = ""


class _Moment(Time):
    """A day or a second in UTC; the value is epoch milliseconds."""

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return epoch milliseconds."""
        text = reader.read_text(slot, value)
        for form in _FORMS:
            try:
                return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
            except ValueError:
                continue
        raise reader.make_wrong_error(slot, text, "YYYY-MM-DD or YYYY-MM-DD HH:mm:ss")


class _Seconds(ParameterKind):
    """A number of seconds; the value is nanoseconds."""

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Parse a number of seconds; return nanoseconds."""
        text = reader.read_text(slot, value)
        try:
            number = float(text)
        except ValueError as error:
            raise InvalidRequestError(f"{slot.name} {text[:40]!r} is not a number of seconds", slot.name) from error
        if not 0 <= number <= 10**9:
            raise InvalidRequestError(f"{slot.name} is not from 0 to 10^9 seconds", slot.name)
        return round(number * 10**9)


def _describe_exact_filter(name: str) -> str:
    holder, key = _EXACT[name]
    return f"The exact value of `{holder.value}` `{key}`."


@operation("GET /api/v1/PAILLMTrace/TracesDatas", "traces:read")
class ListTracesDatas(AlibabaRequest, frozen=True, kw_only=True):
    """Lists traces that the key may see, each with its spans as JSON text: `{Traces, TotalCount, RequestId}`."""

    min_time: Annotated[
        int | None,
        "`YYYY-MM-DD` or `YYYY-MM-DD HH:mm:ss`, UTC. Default: two days ago.",
        _Moment(),
    ] = None
    max_time: Annotated[int | None, "In the same form. Default: in ten minutes.", _Moment()] = None
    page_number: Annotated[int, "From 1.", Meta(ge=1, le=10_000)] = 1
    page_size: Annotated[int, Meta(ge=1, le=100)] = 20
    sort_by: Annotated[TraceOrder, Choice({"StartTime": TraceOrder.START, "Duration": TraceOrder.DURATION})] = (
        TraceOrder.START
    )
    sort_order: Annotated[bool, Choice({"ASC": False, "DESC": True})] = True
    trace_ids: Annotated[tuple[str, ...], "Comma separated."] = ()
    span_ids: Annotated[tuple[str, ...], "Comma separated: traces that have one of these spans."] = ()
    span_name: Annotated[str, "The exact name of a span."] = ""
    min_duration: Annotated[int | None, "Seconds.", _Seconds()] = None
    max_duration: Annotated[int | None, "Seconds.", _Seconds()] = None
    has_events: Annotated[bool, "`True`: traces with a span that has events."] = False
    has_status_message: Annotated[bool, "`True`: traces with a span that has a status message."] = False
    llm_app_name: Annotated[str, _describe_exact_filter("llm_app_name")] = ""
    end_user_id: Annotated[str, _describe_exact_filter("end_user_id")] = ""
    owner_id: Annotated[str, _describe_exact_filter("owner_id")] = ""
    owner_sub_id: Annotated[str, _describe_exact_filter("owner_sub_id")] = ""
    session_id: Annotated[str, _describe_exact_filter("session_id")] = ""
    filters: Annotated[
        Sequence[_Filter],
        "JSON: `[{Key, Operator, Value}]`.",
        JsonText(list[_Filter], "not a JSON list of {Key, Operator, Value}"),
    ] = ()
    opentelemetry_compatible: Annotated[bool, "`True`: each trace is OpenTelemetry's `TracesData`."] = False
    trace_reduce_method: Annotated[str, Choice(_REDUCED)] = ""

    def _steps(self) -> Steps:
        page = yield from ask(self._filter())
        ids = frozenset(one.trace for one in page.traces)
        found: list[Span] = []
        if ids:
            projects = frozenset(one.project for one in page.traces)
            found = yield from ask(SpanFilter(projects=projects, traces=ids, limit=MOST_SPANS))
        if len(found) == MOST_SPANS:
            raise LimitExceededError(f"these traces have {MOST_SPANS} spans and more: ask for fewer", "PageSize")
        own = group_pairs(((span.project, span.trace), span) for span in found)
        form = convert_trace if self.opentelemetry_compatible else describe_trace
        spans = [own[one.project, one.trace] for one in page.traces if (one.project, one.trace) in own]
        traces = [dump_json(form(_reduce_spans(members, self.trace_reduce_method))) for members in spans]
        return answer({"Traces": traces, "TotalCount": page.total or 0}, self)

    def _filter(self) -> TraceFilter:
        names = {self.span_name} - {""}
        conditions = [
            SpanCondition(key=key, value=getattr(self, name), holder=holder)
            for name, (holder, key) in _EXACT.items()
            if getattr(self, name)
        ]
        statuses: set[SpanStatus] = set()
        for one in self.filters:
            key, operator = one.key.lower(), _operator(one)
            if key in _KEYS:
                holder, attribute = _KEYS[key]
                conditions.append(SpanCondition(key=attribute, value=one.value, operator=operator, holder=holder))
            elif key == "status" and operator is SpanOperator.EQUALS:
                statuses.add(_status(one.value))
            elif key == "spanname" and operator is SpanOperator.EQUALS:
                names.add(one.value)
            else:
                raise InvalidRequestError(
                    f"Filters: {one.key[:64]!r} with {one.operator[:20]!r} is not supported", "Filters"
                )
        now_ms = self.context.now_ms
        return TraceFilter(
            traces=frozenset(one.lower() for one in self.trace_ids),
            span_ids=frozenset(one.lower() for one in self.span_ids),
            start_ns=(now_ms - 2 * DAY if self.min_time is None else self.min_time) * NS_PER_MS,
            end_ns=(now_ms + 10 * MINUTE if self.max_time is None else self.max_time) * NS_PER_MS,
            names=frozenset(names),
            statuses=frozenset(statuses),
            conditions=tuple(conditions),
            has_events=self.has_events,
            has_message=self.has_status_message,
            min_ns=self.min_duration,
            max_ns=self.max_duration,
            order=self.sort_by,
            descending=self.sort_order,
            offset=(self.page_number - 1) * self.page_size,
            limit=self.page_size,
            count=True,
        )


def _operator(given: _Filter) -> SpanOperator:
    found = _OPERATORS.get(given.operator.lower())
    if found is None:
        raise InvalidRequestError(f"Filters: operator {given.operator[:20]!r} is unknown", "Filters")
    return found


def _status(text: str) -> SpanStatus:
    try:
        return SpanStatus(text.lower().removeprefix("status_code_"))
    except ValueError as error:
        raise InvalidRequestError(f"Filters: status {text[:20]!r} is not one of UNSET, OK, ERROR", "Filters") from error


def _reduce_spans(spans: Sequence[Span], how: str) -> Sequence[Span]:
    if how == "root":
        spans = [min(spans, key=lambda span: (bool(span.parent), span.start_ns, span.span))]
    return [replace(one, attributes=drop_embeddings(one.attributes)) for one in spans] if how else spans
