"""Log lines, spans and outboxes where the leading server alone writes: followers send it their rows."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span, TracePage
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.store.base import LogSelector, LogStore, OutboxStore, ReadBudget, SpanStore
from jobmeter.store.clickhouse.peer_messages import LeaderCommand
from jobmeter.store.clickhouse.peer_work import StoreCommands

_RETENTION = Retention()
_LINES, _SPANS, _OUTBOX, _TRIM = "append_lines", "append_spans", "append_outbox", "trim_outbox"


class LeaderCall(Protocol):
    """Runs a command of the leader. See ``NodeLog.command``."""

    def __call__(self, name: str, argument: int | None, content: bytes = b"") -> int | None:
        """Return None if this server does not follow one."""
        ...


class LedLogs:
    """Implements ``jobmeter.store.base.LogStore``."""

    def __init__(self, table: LogStore, command: LeaderCall) -> None:
        self._table = table
        self._command = command

    def append(self, lines: Sequence[LogLine], retention: Retention = _RETENTION) -> None:
        """Store log lines. On return they are durable."""
        if lines and self._command(_LINES, None, msgspec.msgpack.encode((list(lines), retention))) is None:
            self._table.append(lines, retention)

    def read(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """Return one page of the lines of a job or a node."""
        return self._table.read(selector, budget)


class LedSpans:
    """Implements ``jobmeter.store.base.SpanStore``."""

    def __init__(self, table: SpanStore, command: LeaderCall) -> None:
        self._table = table
        self._command = command

    def append(self, spans: Sequence[Span], retention: Retention = _RETENTION) -> None:
        """Store spans. On return they are durable."""
        if spans and self._command(_SPANS, None, msgspec.msgpack.encode((list(spans), retention))) is None:
            self._table.append(spans, retention)

    def traces(self, selector: TraceFilter, budget: ReadBudget) -> TracePage:
        """Return one page of traces."""
        return self._table.traces(selector, budget)

    def read(self, selector: SpanFilter, budget: ReadBudget) -> list[Span]:
        """Return one page of the spans of some traces, each once."""
        return self._table.read(selector, budget)


class LedOutbox:
    """Implements ``jobmeter.store.base.OutboxStore``."""

    def __init__(self, table: OutboxStore, command: LeaderCall) -> None:
        self._table = table
        self._command = command

    def append(self, shipper: int, rows: Sequence[OutboxRow]) -> None:
        """Store rows. On return they are durable."""
        if self._command(_OUTBOX, shipper, msgspec.msgpack.encode(list(rows))) is None:
            self._table.append(shipper, rows)

    def read(self, shipper: int, after: int, lines: int, size: int) -> list[OutboxRow]:
        """Return the rows after a number, in order, each once."""
        return self._table.read(shipper, after, lines, size)

    def trim(self, shipper: int, until: int | None) -> None:
        """Delete the rows up to a number; None: all of them."""
        if self._command(_TRIM, shipper, msgspec.msgpack.encode(until)) is None:
            self._table.trim(shipper, until)


class LeaderTables(Protocol):
    """Store with these tables."""

    logs: LogStore
    spans: SpanStore
    outbox: OutboxStore


def make_table_commands(store: LeaderTables) -> StoreCommands:
    """Return the commands by which followers change the tables of a leader."""

    def append_lines(command: LeaderCommand) -> int:
        store.logs.append(*msgspec.msgpack.decode(command.content, type=tuple[list[LogLine], Retention]))
        return 0

    def append_spans(command: LeaderCommand) -> int:
        store.spans.append(*msgspec.msgpack.decode(command.content, type=tuple[list[Span], Retention]))
        return 0

    def append_outbox(command: LeaderCommand) -> int:
        store.outbox.append(command.argument or 0, msgspec.msgpack.decode(command.content, type=list[OutboxRow]))
        return 0

    def trim_outbox(command: LeaderCommand) -> int:
        store.outbox.trim(command.argument or 0, msgspec.msgpack.decode(command.content, type=int | None))
        return 0

    return {_LINES: append_lines, _SPANS: append_spans, _OUTBOX: append_outbox, _TRIM: trim_outbox}
