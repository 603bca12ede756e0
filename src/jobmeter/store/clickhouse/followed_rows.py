"""Rows of another server's journal in the memory of a follower."""

import threading
from collections.abc import Sequence

import numpy as np

from jobmeter.model.batch import SampleBatch
from jobmeter.store.clickhouse.pending import Pending
from jobmeter.store.clickhouse.rows import JournalBlock, SampleRuns


class FollowedRows:
    """Copies of the rows of a leader's journal, in order. Safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[JournalBlock] = []

    def list_blocks(self) -> Sequence[JournalBlock]:
        """Return the blocks."""
        with self._lock:
            return tuple(self._blocks)

    def get_pending(self) -> Pending:
        """Return the rows for readers."""
        return Pending(self.list_blocks())

    def add(self, blocks: Sequence[JournalBlock]) -> None:
        """Add blocks."""
        with self._lock:
            self._blocks += blocks

    def drop_oldest(self, count: int) -> None:
        """Drop the oldest blocks."""
        with self._lock:
            del self._blocks[:count]

    def clear(self) -> None:
        """Drop all blocks."""
        with self._lock:
            self._blocks = []


def make_batch(rows: SampleRuns) -> SampleBatch:
    """Return rows as a batch without the objects of its series."""
    single = len(rows.count) == len(rows)
    index = np.arange(len(rows.count), dtype=np.uint32)
    return SampleBatch(
        (), index if single else np.repeat(index, rows.count), rows.time, rows.value, rows.keys, rows.span, single
    )
