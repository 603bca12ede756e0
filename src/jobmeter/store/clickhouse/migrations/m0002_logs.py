"""Log lines.

Sorted by job and time, so that a page of one job is read from a few granules, in either direction, whatever else is
stored. The rest of the key lets a repeated line replace itself; only the first part of the key is held in memory. The
small index lets a search for errors skip the granules without any.
"""

from jobmeter.store.clickhouse.schema import TableSchema, create
from jobmeter.store.clickhouse.target import EngineTarget

LOGS = TableSchema(
    name="logs",
    columns=(
        "job UInt64 CODEC(Delta, ZSTD(1))",
        "time_ns Int64 CODEC(Delta, ZSTD(1))",
        "replica LowCardinality(String)",
        "attempt UInt32 CODEC(T64, ZSTD(1))",
        "stream LowCardinality(String)",
        "text String CODEC(ZSTD(1))",
        "node LowCardinality(String)",
        "level UInt8 CODEC(ZSTD(1))",
        "raw_days UInt16 CODEC(ZSTD(1))",
        "INDEX levels level TYPE set(8) GRANULARITY 1",
    ),
    primary_key="job, time_ns",
    order_by="job, time_ns, replica, attempt, stream, text",
    partition_by="intDiv(time_ns, 86400000000000)",
    ttl="toDateTime(least(intDiv(time_ns, 1000000000) + 86400 * (raw_days + 1), 4294967295))",
    # Merged parts are on disk before their sources are removed.
    settings=("min_rows_to_fsync_after_merge = 1",),
)


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the table."""
    return create(LOGS, target)
