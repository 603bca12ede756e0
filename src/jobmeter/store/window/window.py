"""Many columns, found by (job key, series id), bounded in time and in bytes."""

import threading
from collections.abc import Iterator

import numpy as np

from jobmeter.model.batch import Float64s, Int64s, SampleBatch, SeriesKeys, Uint64s
from jobmeter.model.time import DAY
from jobmeter.store.window.column import Column, View

Key = tuple[int, int]
_OVERHEAD = 400
"""Bytes that a column takes beside its samples: objects, array heads, a place in a dictionary."""


class Window:
    """The newest ``length_ms`` of every series that was written lately, in at most ``bound`` bytes.

    When the bytes do not suffice, the window shrinks for everybody, and ``length_ms`` says so. Writers take turns;
    readers never wait.
    """

    def __init__(self, length_ms: int, bound: int) -> None:
        self.length_ms = length_ms
        self._asked_ms = length_ms
        self._bound = bound
        self._columns: dict[Key, Column] = {}
        self._bytes = 0
        self._writing = threading.Lock()

    @property
    def bytes(self) -> int:
        """Memory in use, about."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, key: Key) -> bool:
        return key in self._columns

    def views(self, keys: SeriesKeys) -> list[View | None]:
        """The view of each key, None for a series that is not here."""
        found = self._columns.get
        pairs = zip(keys.job.tolist(), keys.series.tolist(), strict=True)
        return [column.view if (column := found(pair)) is not None else None for pair in pairs]

    def write(self, batch: SampleBatch, keys: SeriesKeys, now_ms: int) -> None:
        """Add the batch's samples to those of its series that are here. ``keys`` are those of ``batch.series``."""
        with self._writing:
            keep_from = now_ms - self.length_ms
            columns = [self._columns.get(pair) for pair in zip(keys.job.tolist(), keys.series.tolist(), strict=True)]
            recent = batch.time >= keep_from
            if not recent.all():
                # What is too old to be taken in may not be vouched for either.
                for position in np.unique(batch.index[~recent]).tolist():
                    self._forget(columns[position], keep_from)
            for position, time, value in ascending(batch.index[recent], batch.time[recent], batch.value[recent]):
                column = columns[position]
                if column is not None:
                    self._bytes -= column.bytes
                    column.write(time, value, keep_from)
                    self._bytes += column.bytes
            self._shrink(now_ms)

    def adopt(self, key: Key, time: Int64s, value: Float64s, since_ms: int) -> None:
        """Take a series in, with every sample it has at or after ``since_ms``; a no-op when it is here already."""
        with self._writing:
            if key not in self._columns:
                column = Column(time, value, since_ms)
                self._columns[key] = column
                self._bytes += column.bytes + _OVERHEAD

    def drop_job(self, job: int) -> None:
        """Forget every series of a job."""
        with self._writing:
            for key in [key for key in self._columns if key[0] == job]:
                self._drop(key)

    def sweep(self, now_ms: int) -> None:
        """Forget what is older than the window; let a shrunken window grow again.

        A series that has nothing in the window stays for a day, empty: that it has nothing is an answer too.
        """
        with self._writing:
            keep_from = now_ms - self.length_ms
            for key, column in list(self._columns.items()):
                time = column.view.time
                if column.last_ms < now_ms - DAY:
                    self._drop(key)
                elif len(time) and time[len(time) // 2] < keep_from:
                    self._forget(column, keep_from)
            if self._bytes < self._bound // 2:
                self.length_ms = min(self._asked_ms, self.length_ms * 2)

    def _forget(self, column: Column | None, before_ms: int) -> None:
        if column is not None:
            self._bytes -= column.bytes
            column.forget(before_ms)
            self._bytes += column.bytes

    def _drop(self, key: Key) -> None:
        self._bytes -= self._columns.pop(key).bytes + _OVERHEAD

    def _shrink(self, now_ms: int) -> None:
        while self._bytes > self._bound and self.length_ms > 60_000:
            self.length_ms = self.length_ms * 3 // 4
            for key, column in list(self._columns.items()):
                self._forget(column, now_ms - self.length_ms)
                if not len(column.view.time):
                    self._drop(key)
        if self._bytes > self._bound:
            # A minute of everybody is still too much: whoever comes next is answered by the engine.
            for key in list(self._columns)[: len(self._columns) // 4 + 1]:
                self._drop(key)


def ascending(index: np.ndarray, time: Int64s, value: Float64s) -> Iterator[tuple[int, Int64s, Float64s]]:
    """For each series of some rows: its position and its samples, ascending, the last of equal times only."""
    if not len(index):
        return
    order = np.lexsort((np.arange(len(index)), time, index))
    index, time, value = index[order], time[order], value[order]
    last = np.append((index[1:] != index[:-1]) | (time[1:] != time[:-1]), True)
    index, time, value = index[last], time[last], value[last]
    starts = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
    ends = np.append(starts[1:], len(index))
    for position, start, end in zip(index[starts].tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield position, time[start:end], value[start:end]


__all__ = ["Key", "Uint64s", "Window", "ascending"]
