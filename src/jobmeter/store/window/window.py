"""The newest samples of many series, found by their keys, bounded in time and in bytes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import Float64s, Int64s, SampleBatch, SampleColumns, SeriesKeys, mark_first_rows
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import DAY, MINUTE, SECOND
from jobmeter.store.window.arena import FOREVER, Arena, HeaderField
from jobmeter.store.window.merge import merge, sort_samples
from jobmeter.store.window.pages import (
    NO_PAGE,
    NO_ROW,
    PAGE_BYTES,
    ROW_BYTES,
    Pages,
    PageWriter,
    SeriesRows,
    count_pages,
    count_rows,
)
from jobmeter.store.window.read import FoundRows, WindowReads
from jobmeter.store.window.revisions import Revisions

T = TypeVar("T")

_SHORTEST_MS = MINUTE
_NEARLY_FULL, _FULL = 0.85, 0.95
"""Shares of the memory bound above which the window shrinks: the next batch needs room before its size is known."""
_INCOMPLETE_MS = 2**62
"""Time since which a row is complete while its first samples are missing."""
_SWEPT = 65_536
"""Rows that are swept at a time, which bounds the wait of other threads."""
_MERGED = 1_024
"""Rows that late samples are merged into at a time: some MiB of arrays."""


class Window(WindowReads):
    """The newest ``length_ms`` of every recently written series, in at most ``bound`` bytes.

    If the bytes do not suffice, the window shrinks for all series, and ``length_ms`` with it. If even a minute of all
    series is too much, the least recently written series are dropped. Safe for several threads: a thread holds the lock
    only while samples are copied. Other processes read it without the lock, by ``descriptor``: ``SharedWindow``.
    """

    def __init__(self, length_ms: int, bound: int) -> None:
        self.length_ms = length_ms
        self._configured_ms = length_ms
        self._bound = bound
        self._arena = Arena.create(bound)
        self.revisions = Revisions(self._arena.take)
        pages = Pages(count_pages(bound), self._arena.take)
        self.series = SeriesTable(count_rows(bound), self._arena.take)
        super().__init__(pages, SeriesRows(self.series))
        self._appends = PageWriter(self._pages, self._rows)
        self._lock = self.series.lock
        self._writes = 0

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor of the window's memory, for ``SharedWindow.open`` in another process.

        None if the system has no memory with a descriptor.
        """
        return self._arena.descriptor

    def close(self) -> None:
        """Show other processes that no further write will follow."""
        self.share(float("-inf"))

    def share(self, until: float) -> None:
        """Allow other processes to answer from the window until a time (``read_clock``)."""
        self._arena.header[HeaderField.UNTIL] = int(min(max(until, 0) * SECOND, FOREVER))

    @property
    def bytes(self) -> int:
        """Memory in use, about."""
        return self._pages.used * PAGE_BYTES + len(self._rows) * ROW_BYTES

    @property
    def full(self) -> bool:
        """True if the window is about to shrink."""
        return self.bytes > self._bound * _NEARLY_FULL

    def __len__(self) -> int:
        return len(self._rows)

    def has_all(self, keys: SeriesKeys) -> bool:
        """Return True if each of these series is here."""
        with self._lock:
            return self._look_up(keys).whole

    def find_missing(self, keys: SeriesKeys) -> NDArray[np.bool_]:
        """Return bool[k]: the series that are not here."""
        with self._lock:
            return self._look_up(keys).rows < 0

    def adopt(self, keys: SeriesKeys, columns: SampleColumns, since_ms: int, now_ms: int | None = None) -> None:
        """Add series that are not here, with every sample that they have at or after ``since_ms``.

        ``columns`` are sorted by (index, time), each pair once. If there is no room, the window shrinks for them at
        ``now_ms``; without ``now_ms`` they stay outside.
        """
        with self._lock:
            new = np.flatnonzero(self._rows.find(keys) < 0)
            samples = np.bincount(columns.index, minlength=len(keys))[new]
            needed = np.cumsum((samples // PAGE + 1) * PAGE_BYTES + ROW_BYTES)
            if len(new) and now_ms is not None and self.bytes + int(needed[-1]) > self._bound:
                self._shrink(now_ms, int(needed[-1]))
            new = new[self.bytes + needed <= self._bound]
            rows = np.full(len(keys), NO_ROW)
            added = rows[new] = self._rows.add_all(keys.select(new), _INCOMPLETE_MS)
            of = rows[columns.index]
            there = of != NO_ROW
            self._write(of[there], columns.time[there], columns.value[there])
            self._writes += 1
            with self._rows.marks.mark_writing(added):
                self._rows.since[added], self._rows.written[added] = since_ms, self._writes

    def write_all(self, batches: Sequence[SampleBatch], now_ms: int) -> None:
        """Add samples, in any order, to the series that are here. Of two samples at one time the later row wins.

        Samples before the window are dropped; their series are then complete from the window's start on.
        """
        with self._lock:
            if len(batches) == 1 or not all(batch.single for batch in batches):
                for batch in batches:
                    # Find rows batch by batch: a batch may take the rows of the next batch's series.
                    found = self._look_up(batch.keys).rows
                    self._append(found, SampleColumns(batch.index, batch.time, batch.value), now_ms)
                return
            rows = np.concatenate([self._look_up(batch.keys).rows for batch in batches])
            time, value = (np.concatenate(one) for one in zip(*((b.time, b.value) for b in batches), strict=True))
            self._append(rows, SampleColumns(np.arange(len(rows), dtype=np.uint32), time, value), now_ms)

    def _append(self, rows_found: Int64s, columns: SampleColumns, now_ms: int) -> None:
        keep_from = now_ms - self.length_ms
        self._writes += 1
        rest = self._appends.append(rows_found, columns, keep_from, self._writes)
        if len(rest):
            self._write_any(rows_found, rest, keep_from)
            # Raise the number again: a reader may have read it before these samples.
            self._writes += 1
            late = rows_found[rest.index]
            with self._rows.marks.mark_writing(late):
                self._rows.written[late] = self._writes
        self._shrink(now_ms)

    def _consistent(self, keys: SeriesKeys, answer: Callable[[FoundRows], T | None]) -> T | None:
        with self._lock:
            return answer(self._look_up(keys))

    def drop(self, keys: SeriesKeys) -> None:
        """Drop these series."""
        with self._lock:
            rows = self._rows.find(keys)
            self._remove(np.unique(rows[rows >= 0]))

    def drop_job(self, job: int) -> None:
        """Drop every series of a job."""
        with self._lock:
            self._remove(self._rows.find_job_rows(job))

    def clear(self) -> None:
        """Drop every series."""
        with self._lock:
            self._remove(self._rows.list_rows())

    def sweep(self, now_ms: int) -> None:
        """Drop samples that are older than the window; let a shrunken window grow again.

        A series without samples in the window stays for a day, because its emptiness is an answer too.
        """
        with self._lock:
            everything = self._rows.list_rows()
        for start in range(0, len(everything), _SWEPT):
            with self._lock:
                rows = self._rows.select_used(everything[start : start + _SWEPT])
                gone = self._rows.last[rows] < now_ms - DAY
                self._remove(rows[gone])
                self._expire(rows[~gone], now_ms - self.length_ms)
        with self._lock:
            if self.bytes < self._bound // 2:
                self.length_ms = min(self._configured_ms, self.length_ms * 2)

    def _write_any(self, rows_found: Int64s, columns: SampleColumns, keep_from: int) -> None:
        """Write samples of any age and order; ``rows_found``: the rows of their series, -1 for none."""
        index, time, value, since = columns.index, columns.time, columns.value, self._rows.since
        recent = time >= keep_from
        if not recent.all():
            old = np.zeros(len(rows_found), np.bool_)
            old[index[~recent]] = True
            stale = rows_found[old & (rows_found >= 0)]
            with self._rows.marks.mark_writing(stale):
                since[stale] = np.maximum(since[stale], keep_from)
            index, time, value = index[recent], time[recent], value[recent]
        rows = rows_found[index]
        keep = (rows >= 0) & (time >= since[rows])
        if not keep.all():
            rows, time, value = rows[keep], time[keep], value[keep]
        if len(rows):
            self._write(*sort_samples(rows, time, value))

    def _write(self, rows: Int64s, time: Int64s, value: Float64s) -> None:
        """Write samples, row after row, ascending in time, each time once."""
        begins = mark_first_rows(rows)
        own, index = rows[begins], np.cumsum(begins) - 1
        for first in range(0, len(own), _MERGED):
            part = slice(*np.searchsorted(index, (first, first + _MERGED)).tolist())
            some = own[first : first + _MERGED]
            self._remove(merge(self._pages, self._rows, some, index[part] - first, time[part], value[part]))

    def _expire(self, rows: Int64s, keep_from_ms: int) -> None:
        """Return the pages whose samples are all older."""
        pages, rows_found = self._pages, self._rows
        while len(rows):
            rows = rows[rows_found.first_page[rows] >= 0]
            page = rows_found.first_page[rows]
            newest = pages.find_newest(page)
            old = newest < keep_from_ms
            rows, page = rows[old], page[old]
            with rows_found.marks.mark_writing(rows):
                rows_found.since[rows] = np.maximum(rows_found.since[rows], newest[old] + 1)
                rows_found.first_page[rows] = pages.following[page]
                rows_found.last_page[rows[pages.following[page] < 0]] = NO_PAGE
            pages.give_back(page)

    def _remove(self, rows: Int64s) -> None:
        self._pages.give_back(self._pages.follow_chains(self._rows.first_page[rows])[1])
        self._rows.remove(rows)

    def _shrink(self, now_ms: int, needed: int = 0) -> None:
        most = int(self._bound * _FULL) - needed
        while self.bytes > most and self.length_ms > _SHORTEST_MS:
            self.length_ms = self.length_ms * 3 // 4
            self._expire(self._rows.list_rows(), now_ms - self.length_ms)
        if self.bytes > most:
            rows = self._rows.list_rows()
            self._remove(rows[np.argsort(self._rows.last[rows], kind="stable")][: len(rows) // 4 + 1])
