"""The journal makes samples durable with one write and one sync, and inserts them into the engine in large blocks.

A small insert of any size costs the engine about 10 ms: a part, its files, a sync, merges later. So a commit is first
appended to a segment file and acknowledged. Its rows wait in memory until a thread inserts all waiting rows, sorted, in
large blocks, and deletes the segments.

The order of steps, and why no row is lost or returns after its deletion:

- Rows are appended, synced, and put at the end of the queue of waiting rows, under one lock. So the order of the
  files is the order of writes, and every row of an ended segment waits.
- One flush runs at a time. It ends the segment, inserts all rows that waited, and deletes the segments before the
  next flush may insert. So, whenever the process dies, the segments have all rows from some time on, and the engine
  has no row of theirs without the rows before it in the same flush. Inserting them again, in order, changes no newer
  row.
- Rows wait until the engine has them. Readers read the waiting rows first and the engine second, and a waiting row
  replaces that of the engine: each row is found at least once, in one place or in both.
- If a write or a sync fails, the rows are not acknowledged, and the file is not written again. If the engine fails,
  the rows stay waiting, in memory and in their segments; past a bound new rows are rejected.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from jobmeter.errors import JobmeterError, ThrottledError, UnavailableError
from jobmeter.model.batch import Uint64s
from jobmeter.model.time import DAY, MAX_TIME_MS
from jobmeter.store.clickhouse import imported
from jobmeter.store.clickhouse.commit import CommitLog
from jobmeter.store.clickhouse.failures import make_unavailable
from jobmeter.store.clickhouse.pending import Pending
from jobmeter.store.clickhouse.recovery import SeriesNames, recover
from jobmeter.store.clickhouse.rows import JournalBlock, SampleRuns
from jobmeter.store.clickhouse.segments import Segments

_log = logging.getLogger(__name__)
_RETRY_AFTER_MS = 1_000


class CopyStream(Protocol):
    """Receives the changes of the rows that wait. No call waits for another server."""

    def note_added(self, group: Sequence[SampleRuns]) -> None:
        """Take rows that wait from now on."""
        ...

    def note_flushed(self, blocks: int) -> None:
        """Note that the engine has the oldest rows: as many members of groups."""
        ...


Insert = Callable[[list[SampleRuns]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """Bounds of the waiting rows, and the times at which they are flushed to the engine.

    A flush starts at ``flush_rows``, or when the oldest row has waited ``flush_seconds``. Rows of many days wait for
    ``day_rows`` of each day, up to half of ``most_rows``, because the engine makes a file set for each day. Past
    ``most_rows``, or ``most_bytes`` including the descriptors of new series, commits wait for ``wait_seconds`` at most.
    After a failure the next flush starts ``retry_seconds`` later.
    """

    flush_rows: int = 1_000_000
    day_rows: int = 200_000
    flush_seconds: float = 5.0
    most_rows: int = 12_000_000
    most_bytes: int = 512 * 2**20
    wait_seconds: float = 30.0
    retry_seconds: float = 2.0


class Journal(CommitLog):
    """A ``CommitLog``. ``insert`` puts rows into the engine, durably; it is called by one thread at a time.

    Raises UnavailableError if the folder or the engine cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        insert: Insert,
        limits: JournalLimits = JournalLimits(),
        copies: CopyStream | None = None,
    ) -> None:
        self.damaged = False
        """True if ``recover`` found that samples were lost."""
        self._insert = insert
        self._limits = limits
        self._copies = copies
        self.segments = Segments(folder)
        self._flushing = threading.Lock()
        self._removable: list[Path] = []  # segments whose rows the engine has; guarded by the lock above
        self._writing = threading.Lock()  # its holder moves rows both to a segment and to the queue
        self._changed = threading.Condition()  # guards the following fields
        self._waiting: list[JournalBlock] = []
        self._imported = imported.NOTHING
        self._forgotten = 0  # how often ``forget`` was called
        self._rows = 0
        self._bytes = 0
        self._fresh = 0  # rows that no flush has started on
        self._oldest = 0.0  # time of the first of these rows
        self._span = (MAX_TIME_MS, 0)  # their span, or a wider one
        self._crowded = False  # a commit waits for room
        self._failed: JobmeterError | None = None
        self._failures = 0
        self._flushes = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def recover(self, prepare: Callable[[SampleRuns], object], names: SeriesNames) -> None:
        """Read the rows that an earlier process left, and start work.

        ``prepare`` is called with all these rows before any of them goes to the engine. If the engine does not accept
        them now, they wait like other rows. ``names`` is used if some of the rows are damaged.
        """
        groups, self.damaged = recover(self.segments, names)
        for rows in groups:
            prepare(rows)
            self._add([JournalBlock(rows)])
        if not self._rows:
            self._removable = self.segments.left
        self._thread = threading.Thread(target=self._run, name="jobmeter-journal", daemon=True)
        self._thread.start()
        try:
            self.flush()
        except JobmeterError as error:
            _log.warning("rows of the journal wait for the telemetry engine: %s", error.message)

    def append(self, group: Sequence[SampleRuns]) -> None:
        """Write one record and sync it; on return the rows are durable.

        Raises ThrottledError if too many rows wait for the engine, UnavailableError if the disk or the engine fails.
        """
        self._wait_for_room(sum(map(len, group)), sum(rows.bytes for rows in group))
        with self._writing:
            self._check_open()
            try:
                self.segments.append(group)
            except OSError as error:
                raise make_unavailable(str(error), "store samples") from error
            self._add([JournalBlock(rows.copy()) for rows in group])

    def get_pending(self) -> Pending:
        """Return the durable rows that may not be in the engine yet."""
        with self._changed:
            return Pending(tuple(self._waiting), self._imported)

    def register(self, take: Callable[[Sequence[SampleRuns]], None]) -> None:
        """Call ``take`` with the waiting rows. No row is added or removed meanwhile."""
        with self._changed:
            take([block.rows for block in self._waiting])

    def void(self) -> None:
        """Delete all rows, those in memory and those that an earlier process left, without inserting them."""
        with self._flushing, self._writing, self._changed:
            paths = self.segments.seal()
            self._waiting.clear()
            self._rows = self._bytes = self._fresh = 0
            self._changed.notify_all()
            self._removable = paths
            self._remove()

    def begin(self, ids: Uint64s) -> None:
        """Begin statistics of series without samples, before their first samples are appended."""
        with self._changed:
            self._imported = self._imported.begin(ids)

    def forget(self) -> None:
        """Drop the statistics of all series: samples were deleted, or roll-ups have the statistics."""
        with self._changed:
            self._imported = imported.NOTHING
            self._forgotten += 1

    def flush(self, before_ms: int | None = None) -> None:
        """Return when earlier rows are in the engine.

        Without a time, all segments that were ended before are deleted.
        """
        if self._matters(before_ms):
            with self._flushing:
                # Another thread may have done it while it had the lock.
                if self._matters(before_ms):
                    self._flush()
                if before_ms is None and self._removable:
                    self._remove()

    def read_statistics(self) -> dict[str, int]:
        """Return the sizes of the journal."""
        with self._changed:
            found = {"rows": self._rows, "bytes": self._bytes, "flushes": self._flushes, "failures": self._failures}
        return found | {
            "series": sum(len(one.ids) for one in self.get_pending().list_descriptors()),
            "disk": self.segments.count_bytes(),
        }

    def close(self) -> None:
        """Flush and close. Rows that the engine does not accept now stay in the segments, for the next process."""
        with self._writing, self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            try:
                self.flush()
            except JobmeterError as error:
                _log.warning("rows stay in the journal: %s", error.message)
        with self._writing:
            self.segments.close()

    def _add(self, sections: Sequence[JournalBlock]) -> None:
        rows = sum(len(one.rows) for one in sections)
        start_ms, end_ms = min(one.start_ms for one in sections), max(one.end_ms for one in sections)
        with self._changed:
            first = not self._fresh
            if first:
                self._oldest = monotonic()
            self._span = min(self._span[0], start_ms), max(self._span[1], end_ms)
            self._waiting += sections
            self._rows += rows
            self._bytes += sum(one.rows.bytes for one in sections)
            self._fresh += rows
            if self._copies is not None:
                self._copies.note_added([one.rows for one in sections])
            if first or self._is_due():
                self._changed.notify_all()

    def _wait_for_room(self, rows: int, size: int) -> None:
        deadline = monotonic() + self._limits.wait_seconds
        with self._changed:
            while not self._closed and not self._has_room(rows, size):
                if self._failed is not None:
                    raise UnavailableError(self._failed.message, _RETRY_AFTER_MS)
                self._crowded = True
                self._changed.notify_all()
                if not self._changed.wait(deadline - monotonic()):
                    raise ThrottledError("more samples arrive than the telemetry engine takes now", _RETRY_AFTER_MS)
            self._crowded = False

    def _has_room(self, rows: int, size: int) -> bool:
        most = self._limits
        return not self._rows or (self._rows + rows <= most.most_rows and self._bytes + size <= most.most_bytes)

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the telemetry store is closed")

    def _matters(self, before_ms: int | None) -> bool:
        with self._changed:
            if before_ms is None:
                return bool(self._waiting or self._removable)
            return any(section.start_ms < before_ms for section in self._waiting)

    def _flush(self) -> None:
        """Insert the waiting rows. The flushing lock is held."""
        with self._writing, self._changed:
            paths = self.segments.seal()
            sections = list(self._waiting)
            before, forgotten = self._imported, self._forgotten
            self._fresh = 0
            self._span = (MAX_TIME_MS, 0)
        try:
            self._remove()
            if sections:
                self._insert([section.rows for section in sections])
            stored = before.add_stored(sections)
        except Exception as error:
            self._note_failure(error)
            raise
        self._removable = paths
        self.segments.note_flushed()
        with self._changed:
            # Rows are only ever added behind these.
            del self._waiting[: len(sections)]
            if self._copies is not None and sections:
                self._copies.note_flushed(len(sections))
            # Series that began after ``forget`` may be among these rows, too.
            same = forgotten == self._forgotten
            self._imported = self._imported.subtract(before, stored) if same else imported.NOTHING
            self._rows -= sum(len(section.rows) for section in sections)
            self._bytes -= sum(section.rows.bytes for section in sections)
            self._failed = None
            self._flushes += 1
            self._changed.notify_all()
        try:
            self._remove()
        except JobmeterError as error:
            # The next flush starts with it: until then no newer row gets into the engine.
            _log.warning("%s", error.message)

    def _remove(self) -> None:
        try:
            self.segments.remove(self._removable)
        except OSError as error:
            raise make_unavailable(str(error), "remove its journal") from error
        self._removable = []

    def _note_failure(self, error: Exception) -> None:
        with self._changed:
            self._failures += 1
            self._fresh = self._rows
            unknown = UnavailableError("the telemetry engine cannot store samples now: see the server's log")
            self._failed = error if isinstance(error, JobmeterError) else unknown
            self._changed.notify_all()

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                with self._flushing:
                    if self._is_due():
                        self._flush()
            except JobmeterError as error:
                _log.warning("samples wait in the journal: %s", error.message)
                self._wait_before_retry()
            except Exception:  # noqa: BLE001 - the rows are safe; a later attempt may succeed
                _log.exception("samples wait in the journal")
                self._wait_before_retry()

    def _wait_until_due(self) -> bool:
        """Wait until a flush is due. Return False if the journal is closed."""
        with self._changed:
            while not self._closed:
                if self._is_due():
                    return True
                left = self._oldest + self._limits.flush_seconds - monotonic()
                self._changed.wait(left if self._fresh else None)
        return False

    def _is_due(self) -> bool:
        if not self._fresh:
            return False
        limits = self._limits
        spread = min(limits.day_rows * ((self._span[1] - self._span[0]) // DAY), limits.most_rows // 2)
        if self._crowded or self._fresh >= max(limits.flush_rows, spread):
            return True
        return monotonic() - self._oldest >= limits.flush_seconds

    def _wait_before_retry(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, self._limits.retry_seconds)
