"""Numbered changes of the schema. A released change is never edited: the next one corrects it."""

from collections.abc import Callable, Sequence

from jobmeter.store.clickhouse.migrations import (
    m0002_logs,
    m0003_samples,
    m0004_system_logs,
    m0005_spans,
    m0006_outbox,
    m0007_servers,
    m0008_peers,
)
from jobmeter.store.clickhouse.target import EngineTarget

Statements = Callable[[EngineTarget], list[str]]
Migration = tuple[int, str, Statements]
"""Number, name and statements of a change."""

MIGRATIONS: Sequence[Migration] = (
    (2, "logs", m0002_logs.list_statements),
    (3, "samples", m0003_samples.list_statements),
    (4, "system logs", m0004_system_logs.list_statements),
    (5, "spans", m0005_spans.list_statements),
    (6, "outbox", m0006_outbox.list_statements),
    (7, "servers", m0007_servers.list_statements),
    (8, "peers", m0008_peers.list_statements),
)
"""Every change, ascending without a gap."""
OLDEST = 3
"""The schema of the oldest data folders that open: they have every change up to this number."""
