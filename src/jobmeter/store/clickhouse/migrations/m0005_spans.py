"""Spans of traces.

Sorted by job and time like log lines, so that the traces of a job are read from its own granules; a small index finds
the rows of one trace. The rest of the key lets a repeated span replace itself. Attributes that are not texts are stored
twice: as texts to compare, and unchanged in ``detail``.
"""

from jobmeter.store.clickhouse.schema import TableSchema, create
from jobmeter.store.clickhouse.target import EngineTarget

SPANS = TableSchema(
    name="spans",
    columns=(
        "job UInt64 CODEC(Delta, ZSTD(1))",
        "start_ns Int64 CODEC(Delta, ZSTD(1))",
        "trace String CODEC(ZSTD(1))",
        "span String CODEC(ZSTD(1))",
        "parent String CODEC(ZSTD(1))",
        "end_ns Int64 CODEC(Delta, ZSTD(1))",
        "project LowCardinality(String)",
        "job_id LowCardinality(String)",
        "replica LowCardinality(String)",
        "attempt UInt32 CODEC(T64, ZSTD(1))",
        "node LowCardinality(String)",
        "service LowCardinality(String)",
        "name LowCardinality(String)",
        "kind UInt8 CODEC(ZSTD(1))",
        "status UInt8 CODEC(ZSTD(1))",
        "message String CODEC(ZSTD(1))",
        "events UInt16 CODEC(ZSTD(1))",
        "attributes Map(String, String) CODEC(ZSTD(1))",
        "resource Map(String, String) CODEC(ZSTD(1))",
        "detail String CODEC(ZSTD(1))",
        "raw_days UInt16 CODEC(ZSTD(1))",
        "INDEX traces trace TYPE bloom_filter(0.01) GRANULARITY 1",
        "INDEX projects project TYPE set(64) GRANULARITY 4",
    ),
    primary_key="job, start_ns",
    order_by="job, start_ns, trace, span",
    partition_by="intDiv(start_ns, 86400000000000)",
    ttl="toDateTime(least(intDiv(start_ns, 1000000000) + 86400 * (raw_days + 1), 4294967295))",
    # Merged parts are on disk before their sources are removed.
    settings=("min_rows_to_fsync_after_merge = 1",),
)


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the table."""
    return create(SPANS, target)
