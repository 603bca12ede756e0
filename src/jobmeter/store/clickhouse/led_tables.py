"""Rows other than samples where the leading server alone writes: followers send it log lines, spans and outbox rows."""

from collections.abc import Callable

import msgspec

from jobmeter.model.log import LogLine
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span
from jobmeter.store.base import Store
from jobmeter.store.clickhouse.peer_work import LeaderCommands

LINES, SPANS, OUTBOX, TRIM = "append_lines", "append_spans", "append_outbox", "trim_outbox"
"""Names of the commands."""
SendRows = Callable[[str, int, Callable[[], object]], bool]
"""Has the leader run a command with a shipper's number, and with the rows that a function returns.

Returns False, without a call of the function, if this server does not follow a leader.
"""


def send_to_no_leader(name: str, shipper: int, rows: Callable[[], object]) -> bool:  # noqa: ARG001 - as any ``SendRows``
    """Return False: this server writes itself."""
    return False


def make_table_commands(store: Store) -> LeaderCommands:
    """Return the commands by which followers change the tables of a leader."""
    decode = msgspec.msgpack.decode
    return {
        LINES: lambda command: store.logs.append(*decode(command.content, type=tuple[list[LogLine], Retention])),
        SPANS: lambda command: store.spans.append(*decode(command.content, type=tuple[list[Span], Retention])),
        OUTBOX: lambda command: store.outbox.append(
            command.argument or 0, decode(command.content, type=list[OutboxRow])
        ),
        TRIM: lambda command: store.outbox.trim(command.argument or 0, decode(command.content, type=int | None)),
    }
