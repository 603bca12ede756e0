"""The commit log of a ClickHouse node: the journal while this server is alone, the node while others use it too."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from jobmeter.errors import JobmeterError, UnavailableError
from jobmeter.model.batch import SeriesKeys, Uint64s
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import DirectInserts, Flusher
from jobmeter.store.clickhouse.journal import Journal, JournalLimits
from jobmeter.store.clickhouse.native import encode
from jobmeter.store.clickhouse.pending import NOTHING, Pending
from jobmeter.store.clickhouse.pool import Pool, accept_all
from jobmeter.store.clickhouse.rollup_state import RollupState
from jobmeter.store.clickhouse.rows import JobHour, SampleRuns

_NEVER = -1
"""Number that no roll-up state has, so that the second mark is always made."""


class NodeLog:
    """Commit log of a ClickHouse node, which also has the ``Duties`` of ``membership``.

    ``check`` is ``NodeMembership.check``, set once the server has a membership.
    ``writing`` is locked while a commit runs: the log changes between two commits only.
    """

    def __init__(self, pool: Pool, folder: Path | None, siblings: int = 1) -> None:
        """``folder`` has this server's journal; None for a server without a journal.

        ``siblings`` journals share the memory for rows that wait.
        """
        most = JournalLimits()
        self._limits = replace(most, most_rows=most.most_rows // siblings, most_bytes=most.most_bytes // siblings)
        self.is_alone = False
        self.writing = threading.Lock()
        self.check: Callable[[], None] = accept_all
        self.damaged = False
        """True if a recovered journal had lost samples."""
        self._direct = DirectInserts(pool)
        self._flusher = Flusher(pool, encode)
        self._folder = folder
        self._journal: Journal | None = None
        self._announcing = threading.Lock()  # guards the next two attributes
        self._listeners: list[Callable[[bool], None]] = []
        self._announced = False
        self._state: RollupState | None = None
        self._catalog: Catalog | None = None

    def bind(self, state: RollupState, catalog: Catalog) -> None:
        """Set the other parts of the store. They are created after the log, because they read its pending rows."""
        self._state, self._catalog = state, catalog

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call a function with True while this server is alone, now and after each change.

        The call comes before new servers may read or write, and after the last other server has gone. The function must
        not append samples.
        """
        with self._announcing:
            self._listeners.append(changed)
            changed(self._announced)

    def append(self, group: Sequence[SampleRuns]) -> None:
        """Make the rows durable: in the journal, or in the node."""
        if self._journal is not None and self.is_alone:
            self._journal.append(group)
        else:
            self._direct.append(group)
            self.check()

    def pending(self) -> Pending:
        """Return the durable rows that may not be in the node yet."""
        return NOTHING if self._journal is None else self._journal.pending()

    def flush(self, before_ms: int | None = None) -> None:
        """Return when earlier rows are in the node."""
        if self._journal is not None:
            self._journal.flush(before_ms)

    def begin(self, ids: Uint64s) -> None:
        """Do nothing: other servers may begin to write to the same series."""

    def forget(self) -> None:
        """Do nothing: there are no statistics of series."""

    def statistics(self) -> dict[str, int]:
        """Return the sizes of the journal."""
        return {} if self._journal is None else self._journal.statistics()

    def close(self) -> None:
        """Flush and close. Rows that the node does not accept now stay in the journal."""
        if self._journal is not None:
            self._journal.close()

    def recover(self, folder: Path) -> None:
        """Insert the samples of a journal whose process has ended, and mark their hours.

        Raises UnavailableError if the node does not accept them.
        """
        state, catalog = self._parts()
        found: set[JobHour] = set()

        def prepare(rows: SampleRuns) -> None:
            found.update(rows.late_hours(MAX_TIME_MS + 1))
            state.mark_before(rows.late_hours(state.intent()))

        journal = Journal(folder, self._insert, self._limits)
        try:
            journal.recover(prepare, catalog)
            journal.flush()
        except BaseException:
            journal.close()
            raise
        # A roll-up of another server may have begun with these hours before the samples were there.
        intent = state.intent()
        state.mark_after({pair for pair in found if pair[1] < intent}, _NEVER)
        self.damaged |= journal.damaged
        if folder == self._folder:
            self._journal = journal
        else:
            journal.close()

    def be_alone(self) -> None:
        """Use the journal from the next commit on."""
        state, catalog = self._parts()
        with self.writing:
            state.reload()
            catalog.forget()
            self.is_alone = True
            # Commits need the list of all series. Read it now: a later commit must not wait for an unreachable node.
            with suppress(JobmeterError):
                catalog.lacks_descriptor(SeriesKeys(np.empty(0, np.uint64), np.empty(0, np.uint64)))
        self._announce(alone=True)

    def be_among_others(self) -> None:
        """Use the node from the next commit on, once it has every row of the journal."""
        state, catalog = self._parts()
        self._announce(alone=False)
        try:
            self.flush()  # most rows, before commits have to wait
            with self.writing:
                self.flush()
                state.write_marks()
                self.is_alone = False
                catalog.forget()
        except BaseException:
            self._announce(alone=self.is_alone)
            raise

    def _announce(self, *, alone: bool) -> None:
        with self._announcing:
            self._announced = alone
            for listener in self._listeners:
                listener(alone)

    def _insert(self, group: Sequence[SampleRuns]) -> None:
        state, _ = self._parts()
        state.write_marks()
        self._flusher(group)

    def _parts(self) -> tuple[RollupState, Catalog]:
        if self._state is None or self._catalog is None:
            raise UnavailableError("the telemetry store is not open yet")
        return self._state, self._catalog
