"""Writes spans to the engine and reads them back.

A span that was written twice is stored twice until the engine merges the copies. Figures of traces count each span
once, and pages leave duplicates out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from jobmeter.errors import LimitExceededError
from jobmeter.model.retention import Retention
from jobmeter.model.series import compute_job_key
from jobmeter.model.span import KINDS, STATUSES, Span, SpanDetail, Trace, TracePage
from jobmeter.model.time import DAY, NS_PER_MS
from jobmeter.model.trace_filter import PAGE_BYTES, SpanFilter, TraceFilter
from jobmeter.store.base import ReadBudget
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.led_tables import SPANS, SendRows, send_to_no_leader
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.reader import ReadMeter
from jobmeter.store.clickhouse.span_sql import list_sql, make_spans_statement, select_total
from jobmeter.store.clickhouse.write_gate import WriteGate
from jobmeter.wire.otlp.values import convert_text

_SPANS = 50_000
_BYTES = 16 * 2**20
_DAYS = 90
_DAY_NS = DAY * NS_PER_MS
_KINDS = {kind: number for number, kind in enumerate(KINDS)}
_STATUSES = {status: number for number, status in enumerate(STATUSES)}


class SpanTable:
    """Implements ``jobmeter.store.base.SpanStore``. Safe for any number of threads."""

    def __init__(self, write: Pool, read: Pool, gate: WriteGate, send: SendRows = send_to_no_leader) -> None:
        self._gate = gate
        self._send = send
        self.shown = "1"
        """SQL condition for the spans of listed traces."""
        self._writes = write
        self._pool = read

    def append(self, spans: Sequence[Span], retention: Retention = Retention()) -> None:  # noqa: B008 - frozen
        """Insert the spans; on return they are on disk."""
        if not spans or self._send(SPANS, 0, lambda: (list(spans), retention)):
            return
        with self._gate.admit_write(), translate_failures("keep spans"), self._writes.borrow_client() as client:
            for block in _blocks(spans, retention.raw_days):
                client.raw_insert("spans", None, block, fmt="JSONEachRow")

    def list_traces(self, selector: TraceFilter, budget: ReadBudget) -> TracePage:
        """Return one page, with the total if the query counts."""
        meter = ReadMeter.start(budget)
        rows = self._query(*list_sql(selector, self.shown), meter, budget) if selector.limit else []
        found = [_trace(row) for row in rows]
        if not selector.count:
            return TracePage(found)
        return TracePage(found, int(self._query(*select_total(selector, self.shown), meter, budget)[0][0]))

    def read(self, selector: SpanFilter, budget: ReadBudget) -> list[Span]:
        """Return one page of spans, each span once."""
        meter, limit = ReadMeter.start(budget), selector.limit
        while selector.traces and selector.limit:
            rows = self._query(*make_spans_statement(selector, limit + 1), meter, budget)
            once = {tuple(row[:5]): row for row in rows}
            # Copies of the last span may continue in unread rows.
            if len(rows) <= limit or len(once) > selector.limit:
                return [_span(row) for row in once.values()][: selector.limit]
            limit *= 2
        return []

    def _query(
        self, sql: str, parameters: dict[str, Any], meter: ReadMeter, budget: ReadBudget
    ) -> Sequence[Sequence[Any]]:
        settings = meter.make_settings() | {
            "max_rows_to_read": budget.rows,
            "max_result_bytes": 2 * PAGE_BYTES,
            "result_overflow_mode": "throw",
        }
        try:
            with translate_failures("read spans"), self._pool.borrow_client() as client:
                rows: Sequence[Sequence[Any]] = client.query(sql, parameters=parameters, settings=settings).result_rows
        except LimitExceededError as error:
            raise LimitExceededError(
                "the question reads more spans than one may: narrow its range, or lower the limit", "limit"
            ) from error
        return rows


def _trace(row: Sequence[Any]) -> Trace:
    project, trace, began, ended, count, errors, root = row
    return Trace(
        trace=trace,
        project=project,
        name=root[0],
        service=root[1],
        job=root[2],
        start_ns=began,
        end_ns=ended,
        spans=count,
        errors=errors,
    )


def _span(row: Sequence[Any]) -> Span:
    trace, start, span, project, job, parent, end, replica, attempt, node, service, name, kind, status, message = row[
        :15
    ]
    detail = msgspec.json.decode(row[17], type=SpanDetail)
    return Span(
        trace=trace,
        span=span,
        parent=parent,
        name=name,
        kind=KINDS[kind],
        start_ns=start,
        end_ns=end,
        status=STATUSES[status],
        message=message,
        project=project,
        job=job,
        replica=replica,
        attempt=attempt,
        node=node,
        service=service,
        attributes={**row[15], **detail.attributes},
        resource={**row[16], **detail.resource},
        scope=detail.scope,
        events=detail.events,
        links=detail.links,
        state=detail.state,
        flags=detail.flags,
        dropped=detail.dropped,
    )


def _blocks(spans: Sequence[Span], raw_days: int) -> Iterator[bytes]:
    """Yield JSON lines of bounded length and a bounded number of days: an insert may touch at most 100 partitions."""
    block: list[bytes] = []
    days: set[int] = set()
    size = 0
    for span in sorted(spans, key=lambda span: span.start_ns // _DAY_NS):
        day = span.start_ns // _DAY_NS
        if block and (len(block) >= _SPANS or size >= _BYTES or (day not in days and len(days) >= _DAYS)):
            yield b"\n".join(block)
            block, days, size = [], set(), 0
        encoded = msgspec.json.encode(_row(span, raw_days))
        block.append(encoded)
        days.add(day)
        size += len(encoded)
    if block:
        yield b"\n".join(block)


def _row(span: Span, raw_days: int) -> dict[str, Any]:
    detail = SpanDetail(
        attributes=_drop_texts(span.attributes),
        resource=_drop_texts(span.resource),
        scope=span.scope,
        events=span.events,
        links=span.links,
        state=span.state,
        flags=span.flags,
        dropped=span.dropped,
    )
    return {
        "job": compute_job_key(span.project, span.job),
        "start_ns": span.start_ns,
        "trace": span.trace,
        "span": span.span,
        "parent": span.parent,
        "end_ns": span.end_ns,
        "project": span.project,
        "job_id": span.job,
        "replica": span.replica,
        "attempt": span.attempt,
        "node": span.node,
        "service": span.service,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "status": _STATUSES[span.status],
        "message": span.message,
        "events": len(span.events),
        "attributes": {key: convert_text(value) for key, value in span.attributes.items()},
        "resource": {key: convert_text(value) for key, value in span.resource.items()},
        "detail": msgspec.json.encode(detail).decode(),
        "raw_days": raw_days,
    }


def _drop_texts(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if not isinstance(value, str)}
