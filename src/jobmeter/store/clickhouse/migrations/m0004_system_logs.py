"""Lines of system logs, and an index of the words of all lines.

The lines of a node's system log are stored under the key of the node. Their job and replica, if known, are not part of
a line's identity. The index has words in lower case, as searches do; existing parts are read without it until the
engine has built theirs.
"""

from collections.abc import Iterator, Sequence

from jobmeter.store.clickhouse.schema import alter
from jobmeter.store.clickhouse.target import EngineTarget

_COLUMNS: Sequence[tuple[str, str, str]] = (
    ("facility", "LowCardinality(String)", ""),
    ("severity", "UInt8 DEFAULT 255", "CODEC(ZSTD(1))"),
    ("tag", "LowCardinality(String)", ""),
    ("about_job", "LowCardinality(String)", ""),
    ("about_replica", "LowCardinality(String)", ""),
)


def list_statements(target: EngineTarget) -> list[str]:
    """Return the statements that add the columns and the index."""
    return list(_statements(target))


def _statements(target: EngineTarget) -> Iterator[str]:
    for name, kind, codec in _COLUMNS:
        yield from alter("logs", target, f"ADD COLUMN IF NOT EXISTS {name} {kind}", codec)
    index = "words lowerUTF8(text) TYPE text(tokenizer = splitByNonAlpha)"
    yield from alter("logs", target, f"ADD INDEX IF NOT EXISTS {index}", spread=False)
    yield from alter("logs", target, "MATERIALIZE INDEX words", spread=False)
