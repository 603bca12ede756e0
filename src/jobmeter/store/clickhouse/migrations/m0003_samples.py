"""Samples, roll-ups, series, and the state of the roll-ups.

Codecs, measured on two-decimal values at 15 s after a merge: 1.81 bytes a sample on disk (value 1.77, time 0.012,
series 0.015, job 0.008). ``ZSTD(1)`` alone stores a constant ``job`` in 0.26 bytes a row; ``Delta`` before it in 0.008.

A value is stored as a decimal number where it is one: ``jobmeter.store.clickhouse.decimals`` says how a row is read,
decision 0013 how many bytes that takes on disk. Values that are no decimal numbers repeat where they are worth packing:
the codec finds whole doubles again.

The embedded engine removes parts as soon as they are merged. Merged parts are synced before their sources are removed.
Without it, a power cut at that moment would lose acknowledged samples.

Rows expire a day later than the retention says. So an hour whose samples are all inside the retention is complete when
its roll-ups are computed again.
"""

from jobmeter.store.clickhouse.schema import Spread, TableSchema, create
from jobmeter.store.clickhouse.target import EngineTarget

_KEY = ("job UInt64 CODEC(Delta, ZSTD(1))", "series UInt64 CODEC(ZSTD(1))")
_TIME = "time Int64 CODEC(DoubleDelta, ZSTD(1))"
_VALUE = "Float64 CODEC(ALP, ZSTD(1))"
_REPEATED = "Float64 CODEC(ZSTD(3))"
_NUMBER = "Int64 CODEC(T64('bit'), ZSTD(1))"
_SMALL = "UInt8 CODEC(ZSTD(1))"
_SYNCED = ("min_rows_to_fsync_after_merge = 1",)
_DECIMAL = (*_SYNCED, "ratio_of_defaults_for_sparse_serialization = 0.7")


def _expiry(seconds: str, days: str) -> str:
    return f"toDateTime(least({seconds} + 86400 * ({days} + 1), 4294967295))"


def _bucket_table(name: str, days: tuple[str, ...]) -> TableSchema:
    return TableSchema(
        name=name,
        columns=(
            *_KEY,
            _TIME,
            "count UInt64 CODEC(T64, ZSTD(1))",
            f"sum {_VALUE}",
            f"minimum {_REPEATED}",
            f"maximum {_VALUE}",
            f"first {_VALUE}",
            "first_time Int64 CODEC(DoubleDelta, ZSTD(1))",
            f"last {_VALUE}",
            "last_time Int64 CODEC(DoubleDelta, ZSTD(1))",
            f"increase {_VALUE}",
            "elapsed Int64 CODEC(T64, ZSTD(1))",
            *(f"{column} UInt16 CODEC(ZSTD(1))" for column in days),
            f"scale {_SMALL}",
            *(f"{column} {_NUMBER}" for column in ("low", "rise", "opening", "closing", "excess")),
        ),
        order_by="job, series, time",
        partition_by="toYYYYMM(toDateTime(intDiv(time, 1000), 'UTC'))",
        ttl=_expiry("intDiv(time, 1000)", days[0]),
        settings=_DECIMAL,
    )


SAMPLES = TableSchema(
    name="samples",
    columns=(
        *_KEY,
        _TIME,
        f"value {_REPEATED}",
        "raw_days UInt16 CODEC(ZSTD(1))",
        "minute_days UInt16 CODEC(ZSTD(1))",
        "hour_days UInt16 CODEC(ZSTD(1))",
        f"number {_NUMBER}",
        f"digits {_SMALL}",
    ),
    order_by="job, series, time",
    partition_by="intDiv(time, 86400000)",
    ttl=_expiry("intDiv(time, 1000)", "raw_days"),
    settings=_DECIMAL,
)
MINUTES = _bucket_table("minutes", ("minute_days", "hour_days"))
HOURS = _bucket_table("hours", ("hour_days",))
SERIES = TableSchema(
    name="series",
    columns=(
        "job UInt64",
        "series UInt64",
        "metric LowCardinality(String)",
        "project LowCardinality(String)",
        "cluster LowCardinality(String)",
        "node LowCardinality(String)",
        "device LowCardinality(String)",
        "job_id String",
        "replica String",
        "attempt UInt32",
        "labels Map(LowCardinality(String), String)",
        "last_day UInt32",
        "keep_days UInt16",
    ),
    order_by="job, series",
    version="last_day",
    ttl=_expiry("toUInt64(last_day) * 86400", "keep_days"),
    settings=_SYNCED,
)
PROGRESS = TableSchema(
    name="progress",
    columns=("name LowCardinality(String)", "value Int64"),
    order_by="name",
    version="value",
    spread=Spread.EVERYWHERE,
    settings=_SYNCED,
)
MARKS = TableSchema(
    name="marks",
    columns=("job UInt64", "hour Int64", "id UInt64", "cleared UInt8", "at Int64"),
    order_by="job, hour, id",
    version="cleared",
    ttl="toDateTime(intDiv(at, 1000)) + INTERVAL 1 DAY DELETE WHERE cleared = 1",
    spread=Spread.EVERYWHERE,
    settings=_SYNCED,
)

TABLES = (SAMPLES, MINUTES, HOURS, SERIES, PROGRESS, MARKS)


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the tables."""
    return [statement for table in TABLES for statement in create(table, target)]
