"""Stores values as decimal numbers, and syncs merged parts before their sources are removed.

``jobmeter.store.clickhouse.decimals`` says how a row is read, decision 0013 how many bytes that takes on disk. Existing
rows keep their doubles.

The embedded engine removes parts as soon as they are merged. Without a sync of the merged part, a power cut at that
moment would lose acknowledged samples.
"""

from collections.abc import Iterator, Sequence

from jobmeter.store.clickhouse.schema import alter
from jobmeter.store.clickhouse.target import EngineTarget

_NUMBER = "Int64", "CODEC(T64('bit'), ZSTD(1))"
_SMALL = "UInt8", "CODEC(ZSTD(1))"
_AGAIN = "Float64 CODEC(ZSTD(3))"
_SYNCED = "MODIFY SETTING min_rows_to_fsync_after_merge = 1"
_SETTINGS = f"{_SYNCED}, ratio_of_defaults_for_sparse_serialization = 0.7"

Column = tuple[str, tuple[str, str]]
_SAMPLE: Sequence[Column] = (("number", _NUMBER), ("digits", _SMALL))
_BUCKET: Sequence[Column] = (
    ("scale", _SMALL),
    *((name, _NUMBER) for name in ("low", "rise", "opening", "closing", "excess")),
)


def statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the columns."""
    return list(_statements(target))


def _statements(target: EngineTarget) -> Iterator[str]:
    for table, columns, doubles in (
        ("samples", _SAMPLE, "value"),
        ("minutes", _BUCKET, "minimum"),
        ("hours", _BUCKET, "minimum"),
    ):
        for name, (kind, codec) in columns:
            yield from alter(table, target, f"ADD COLUMN IF NOT EXISTS {name} {kind}", codec)
        # Values that are no decimal numbers repeat where they are worth packing: the codec finds whole doubles again.
        yield from alter(table, target, f"MODIFY COLUMN {doubles} {_AGAIN}", spread=False)
        yield from alter(table, target, _SETTINGS, spread=False)
    yield from alter("logs", target, _SYNCED, spread=False)
    yield from alter("series", target, _SYNCED, spread=False)
    for table in ("progress", "marks"):
        yield from alter(table, target, _SYNCED, spread=False, sharded=False)
