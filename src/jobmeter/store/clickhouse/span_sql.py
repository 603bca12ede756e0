"""Statements of queries for spans, with bound parameters."""

from collections.abc import Iterator
from typing import Any

from jobmeter.model.series import compute_job_key
from jobmeter.model.span import KINDS, STATUSES
from jobmeter.model.trace_filter import Holder, SpanCondition, SpanFilter, SpanOperator, TraceFilter, TraceOrder

_FIGURES = (
    "project, trace, min(start_ns) AS began, max(end_ns) AS ended, uniqExact(span), "
    "uniqExactIf(span, status = 2), argMin((name, service, job_id), (parent != '', start_ns, span))"
)
_COLUMNS = (
    "trace, start_ns, span, project, job_id, parent, end_ns, replica, attempt, node, service, name, kind, status, "
    "message, attributes, resource, detail"
)
_ORDER = "trace, start_ns, span, project, job_id"
Statement = tuple[str, dict[str, Any]]
_Part = tuple[str, dict[str, Any]]


def list_sql(selector: TraceFilter, shown: str) -> Statement:
    """Return the statement for a page of traces, of the rows that satisfy the condition ``shown``."""
    grouped, parameters = _group_spans(selector, _FIGURES, shown, page=True)
    value = _value(selector)
    direction = "DESC" if selector.descending else "ASC"
    order = f"ORDER BY {value} {direction}, project, trace LIMIT {int(selector.limit)} OFFSET {int(selector.offset)}"
    return f"{grouped} {order}", parameters


def select_total(selector: TraceFilter, shown: str) -> Statement:
    """Return the statement that counts the matching traces. See ``list_sql``."""
    grouped, parameters = _group_spans(selector, "min(start_ns) AS began, max(end_ns) AS ended", shown, page=False)
    return f"SELECT count() FROM ({grouped})", parameters


def make_spans_statement(selector: SpanFilter, limit: int) -> Statement:
    """Return the statement for the spans of some traces, duplicates included."""
    parts: list[_Part] = [("trace IN {traces:Array(String)}", {"traces": sorted(selector.traces)})]
    if selector.projects is not None:
        parts.append(("project IN {projects:Array(String)}", {"projects": sorted(selector.projects)}))
    if selector.after is not None:
        trace, start, span, project, job = selector.after
        after = {"trace": trace, "start": start, "span": span, "project": project, "job": job}
        sql = "({trace:String}, {start:Int64}, {span:String}, {project:String}, {job:String})"
        parts.append((f"({_ORDER}) > {sql}", after))
    where, parameters = _join_conditions(parts)
    return f"SELECT {_COLUMNS} FROM spans WHERE {where} ORDER BY {_ORDER} LIMIT {int(limit)}", parameters


def _group_spans(selector: TraceFilter, figures: str, shown: str, *, page: bool) -> Statement:
    where, parameters = _join_conditions(_list_row_conditions(selector))
    having, more = _join_conditions(
        [*_list_trace_conditions(selector), *(_list_page_conditions(selector) if page else ())]
    )
    sql = f"SELECT {figures} FROM spans WHERE {where} AND {shown} GROUP BY project, trace HAVING {having}"
    return sql, {**parameters, **more}


def _list_row_conditions(selector: TraceFilter) -> Iterator[_Part]:
    """Yield the conditions on the rows that are read."""
    if selector.projects is not None:
        yield "project IN {projects:Array(String)}", {"projects": sorted(selector.projects)}
    if selector.job and selector.projects is not None:
        keys = [compute_job_key(project, selector.job) for project in sorted(selector.projects)]
        yield "job IN {jobs:Array(UInt64)}", {"jobs": keys}
    elif selector.job:
        yield "job_id = {job_id:String}", {"job_id": selector.job}
    if selector.traces:
        yield "trace IN {traces:Array(String)}", {"traces": sorted(selector.traces)}
    if selector.start_ns is not None:
        yield "start_ns >= {start:Int64}", {"start": selector.start_ns}
    if selector.end_ns is not None:
        yield "start_ns < {end:Int64}", {"end": selector.end_ns}


def _list_trace_conditions(selector: TraceFilter) -> Iterator[_Part]:
    """Yield the conditions on whole traces."""
    spans = list(_list_span_conditions(selector))
    if spans:
        sql, parameters = _join_conditions(spans)
        yield f"countIf({sql}) > 0", parameters
    if selector.min_ns is not None:
        yield "ended - began >= {least:Int64}", {"least": selector.min_ns}
    if selector.max_ns is not None:
        yield "ended - began <= {most:Int64}", {"most": selector.max_ns}


def _list_page_conditions(selector: TraceFilter) -> Iterator[_Part]:
    if selector.after is None:
        return
    value, project, trace = selector.after
    sign = "<" if selector.descending else ">"
    sql = (
        f"({_value(selector)} {sign} {{value:Int64}} OR ({_value(selector)} = {{value:Int64}} AND "
        "(project, trace) > ({after_project:String}, {after_trace:String})))"
    )
    yield sql, {"value": value, "after_project": project, "after_trace": trace}


def _value(selector: TraceFilter) -> str:
    return "began" if selector.order is TraceOrder.START else "(ended - began)"


def _list_span_conditions(selector: TraceFilter) -> Iterator[_Part]:
    """Yield the conditions that a single span of a trace must meet."""
    chosen: tuple[tuple[str, str, list[Any]], ...] = (
        ("name", "String", sorted(selector.names)),
        ("service", "String", sorted(selector.services)),
        ("replica", "String", sorted(selector.replicas)),
        ("span", "String", sorted(selector.span_ids)),
        ("status", "UInt8", [STATUSES.index(one) for one in selector.statuses]),
        ("kind", "UInt8", [KINDS.index(one) for one in selector.kinds]),
    )
    for column, kind, values in chosen:
        if values:
            yield f"{column} IN {{some_{column}:Array({kind})}}", {f"some_{column}": values}
    if selector.contains:
        yield "positionCaseInsensitiveUTF8(name, {part:String}) > 0", {"part": selector.contains}
    if selector.has_events:
        yield "events > 0", {}
    if selector.has_message:
        yield "message != ''", {}
    for number, condition in enumerate(selector.conditions):
        yield _condition(number, condition)


def _condition(number: int, condition: SpanCondition) -> _Part:
    columns = {Holder.SPAN: ("attributes",), Holder.RESOURCE: ("resource",)}.get(
        condition.holder, ("attributes", "resource")
    )
    key, value = f"{{key{number}:String}}", f"{{text{number}:String}}"
    form = {
        SpanOperator.EQUALS: "{column}[{key}] = {value}",
        SpanOperator.CONTAINS: "position({column}[{key}], {value}) > 0",
        SpanOperator.STARTS_WITH: "startsWith({column}[{key}], {value})",
    }[condition.operator]
    each = [
        f"(mapContains({column}, {key}) AND {form.format(column=column, key=key, value=value)})" for column in columns
    ]
    return f"({' OR '.join(each)})", {f"key{number}": condition.key, f"text{number}": condition.value}


def _join_conditions(parts: "Iterator[_Part] | list[_Part]") -> Statement:
    found = list(parts)
    parameters = {name: value for _, own in found for name, value in own.items()}
    return " AND ".join(sql for sql, _ in found) or "1", parameters
