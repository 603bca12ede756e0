"""The outbox of log shippers: lines in the order in which they arrived, until their sink has them.

The table of lines is sorted by the lines' own time and lets a line that is sent again replace itself, so that no order
of arrival could be read from it. Here a row is known by its shipper (``job``: what a cluster spreads rows by) and its
number. A row outlives what it waits for by two days, in which the shipper itself counts it as dropped.
"""

from jobmeter.store.clickhouse.schema import Table, create
from jobmeter.store.clickhouse.target import Target

OUTBOX = Table(
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


def statements(target: Target) -> list[str]:
    """What adds the table."""
    return create(OUTBOX, target)
