"""The outbox of log shippers: lines in the order of arrival, until their sink has them.

The table of lines is sorted by the lines' own time and lets a repeated line replace itself, so it has no order of
arrival. Here the key of a row is its shipper (``job``: the column by which a cluster distributes rows) and its number.
A row expires two days after the shipper itself counts it as dropped.
"""

from jobmeter.store.clickhouse.schema import TableSchema, create
from jobmeter.store.clickhouse.target import EngineTarget

OUTBOX = TableSchema(
    name="outbox",
    columns=(
        "job UInt64 CODEC(Delta, ZSTD(1))",
        "number UInt64 CODEC(Delta, ZSTD(1))",
        "arrived Int64 CODEC(Delta, ZSTD(1))",
        "line String CODEC(ZSTD(1))",
        "raw_days UInt16 CODEC(ZSTD(1))",
    ),
    order_by="job, number",
    partition_by="intDiv(arrived, 86400000)",
    ttl="toDateTime(least(intDiv(arrived, 1000) + 86400 * (raw_days + 2), 4294967295))",
    settings=("min_rows_to_fsync_after_merge = 1",),
)


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the table."""
    return create(OUTBOX, target)
