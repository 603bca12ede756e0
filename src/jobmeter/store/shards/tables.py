"""Log lines, spans and outboxes of several shards."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar

from msgspec.structs import replace

from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_batch import LogBatch
from jobmeter.model.retention import Retention
from jobmeter.model.series import compute_job_key
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span, Trace, TracePage
from jobmeter.model.trace_filter import SpanFilter, TraceFilter, TraceOrder
from jobmeter.store.base import LogSelector, ReadBudget
from jobmeter.store.shards.placement import find_shard, number_line, number_node, number_trace
from jobmeter.store.shards.shard import ShardEngine, ShardSet, ask_all, ask_some

_RETENTION = Retention()
_Row = TypeVar("_Row")


class ShardedLogs:
    """Implements ``jobmeter.store.base.LogStore``: all lines of a job, or of a node, are on one shard."""

    def __init__(self, shards: ShardSet) -> None:
        self._set = shards
        self._shards = shards.shards

    def append(self, lines: Sequence[LogLine], retention: Retention = _RETENTION) -> None:
        """Store log lines. On return they are durable."""
        with self._set.keep_placement() as count:
            batch = LogBatch.from_lines(lines)
            own = [find_shard(number_line(source), count) for source in batch.sources]
            parts = {shard: batch.select_sources([one == shard for one in own]) for shard in set(own)}
            filled = {shard: part for shard, part in parts.items() if len(part)}
            ask_all(self._shards, filled, lambda engine, part: engine.logs.append(part, retention))

    def read(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """Return one page of the lines of a job or a node."""
        number = compute_job_key(selector.project, selector.job) if selector.job else number_node(selector.node)
        with self._set.keep_placement() as count:
            return self._shards[find_shard(number, count)].call(lambda engine: engine.logs.read(selector, budget))


class ShardedSpans:
    """Implements ``jobmeter.store.base.SpanStore``: all spans of a trace are on one shard."""

    def __init__(self, shards: ShardSet) -> None:
        self._set = shards
        self._shards = shards.shards

    def append(self, spans: Sequence[Span], retention: Retention = _RETENTION) -> None:
        """Store spans. On return they are durable."""
        with self._set.keep_placement() as count:
            parts = _group(spans, lambda span: number_trace(span.trace), count)
            ask_all(self._shards, parts, lambda engine, part: engine.spans.append(part, retention))

    def list_traces(self, selector: TraceFilter, budget: ReadBudget) -> TracePage:
        """Return one page of traces. A page of each shard has all that may be in it."""
        end = selector.offset + selector.limit
        wide = replace(selector, offset=0, limit=end if selector.limit else 0)
        found = self._ask_traces(selector.traces, lambda engine, _: engine.spans.list_traces(wide, budget))
        merged = sorted((trace for page in found for trace in page.traces), key=partial(_order_trace, selector))
        total = sum(page.total or 0 for page in found) if selector.count else None
        return TracePage(merged[selector.offset : end], total)

    def read(self, selector: SpanFilter, budget: ReadBudget) -> list[Span]:
        """Return one page of the spans of some traces, each once."""
        if not selector.traces:
            return []
        found = self._ask_traces(
            selector.traces, lambda engine, traces: engine.spans.read(replace(selector, traces=traces), budget)
        )
        merged = sorted((span for spans in found for span in spans), key=attrgetter("order"))
        return merged[: selector.limit]

    def _ask_traces(self, traces: frozenset[str], work: Callable[[ShardEngine, frozenset[str]], _Row]) -> list[_Row]:
        """Ask the shards of some traces, or all shards for any trace."""
        with self._set.keep_placement() as count:
            parts = dict.fromkeys(range(count), traces)
            if traces:
                parts = {shard: frozenset(part) for shard, part in _group(list(traces), number_trace, count).items()}
            return list(ask_some(self._shards, parts, work).values())


class ShardedOutbox:
    """Implements ``jobmeter.store.base.OutboxStore``: all lines of a shipper are on one shard."""

    def __init__(self, shards: ShardSet) -> None:
        self._set = shards
        self._shards = shards.shards

    def append(self, shipper: int, rows: Sequence[OutboxRow]) -> None:
        """Store rows. On return they are durable."""
        self._call(shipper, lambda engine: engine.outbox.append(shipper, rows))

    def read(self, shipper: int, after: int, lines: int, size: int) -> list[OutboxRow]:
        """Return the rows after a number, in order, each once."""
        return self._call(shipper, lambda engine: engine.outbox.read(shipper, after, lines, size))

    def trim(self, shipper: int, until: int | None) -> None:
        """Delete the rows up to a number; None: all of them."""
        self._call(shipper, lambda engine: engine.outbox.trim(shipper, until))

    def _call(self, shipper: int, work: Callable[[ShardEngine], _Row]) -> _Row:
        with self._set.keep_placement() as count:
            return self._shards[find_shard(shipper, count)].call(work)


def _group(rows: Sequence[_Row], number: Callable[[_Row], int], count: int) -> dict[int, list[_Row]]:
    """Group rows by shard, in order."""
    shards: dict[int, int] = {}
    found: dict[int, list[_Row]] = {}
    for row in rows:
        key = number(row)
        if key not in shards:
            shards[key] = find_shard(key, count)
        found.setdefault(shards[key], []).append(row)
    return found


def _order_trace(selector: TraceFilter, trace: Trace) -> tuple[int, str, str]:
    value = trace.start_ns if selector.order is TraceOrder.START else trace.duration_ns
    return (-value if selector.descending else value, trace.project, trace.trace)
