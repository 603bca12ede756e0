"""Operations of an operator: delete, count, back up, restore."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobmeter.errors import ConfigurationError, ConflictError, UnavailableError
from jobmeter.store.base import StoreStatistics
from jobmeter.store.clickhouse.backup_files import LIST, list_tables
from jobmeter.store.clickhouse.catalog import Catalog
from jobmeter.store.clickhouse.commit import CommitLog
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.rollup import RollupJob
from jobmeter.store.clickhouse.rollup_state import RollupState, copy_states
from jobmeter.store.clickhouse.schema import make_cluster_clause, name_stored_table
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.clickhouse.write_gate import WriteGate

_DATA = ("samples", "minutes", "hours", "series", "logs", "spans")
_SIZED = (*_DATA, "outbox")
# Samples and roll-ups first, then the marks and descriptors: the copy may have a mark or a series too many, never one
# too few.
_FIRST = ("samples", "minutes", "hours", "logs", "spans", "outbox", "progress", "migrations")
_SECOND = ("marks", "series")
_PARTS = (("data", _FIRST), ("ledger", _SECOND))
_LATER = frozenset({"logs", "spans", "outbox"})
"""Tables that older backups lack."""
MOVED = "the stored data were moved to another engine: restart the server with --store and the address of that engine"


class Maintenance:
    """Implements the ``Store`` methods of the same names. Roll-ups wait while one of these runs."""

    def __init__(
        self,
        pool: Pool,
        target: EngineTarget,
        rollup_state: RollupState,
        catalog: Catalog,
        rollup_job: RollupJob,
        log: CommitLog,
        gate: WriteGate,
    ) -> None:
        self.pool = pool
        self.target = target
        self.rollup_state = rollup_state
        self._catalog = catalog
        self._rollup_job = rollup_job
        self._commit_log = log
        self._gate = gate
        self.moving = threading.Lock()
        """Locked while a move runs."""

    def delete_job(self, job: int) -> None:
        """Delete a job. On return no read finds its rows; the disk space is freed in the background."""
        with self._pause_for_change():
            for table in _DATA:
                with translate_failures("delete a job"), self.pool.borrow_client() as client:
                    # Not awaited: it visits every part, and reads apply pending mutations (apply_mutations_on_fly).
                    client.command(
                        f"ALTER TABLE {self._name_stored(table)}{make_cluster_clause(self.target)} "
                        f"DELETE WHERE job = {int(job)} "
                        "SETTINGS mutations_sync = 0"
                    )

    def erase(self) -> None:
        """Delete everything, and start as on the first start."""
        with self._pause_for_change():
            for table in (*_SIZED, "progress", "marks"):
                with translate_failures("erase its tables"), self.pool.borrow_client() as client:
                    client.command(f"TRUNCATE TABLE {self._name_stored(table)}{make_cluster_clause(self.target)}")
            self.rollup_state.reload()

    def read_statistics(self) -> StoreStatistics:
        """Return the sizes of the stored data, samples in the journal included.

        During a flush, samples on their way from the journal to the engine count twice.
        """
        journal = self._commit_log.read_statistics()
        stored = self._count_by_table("parts", ("sum(rows)", "sum(bytes_on_disk)", "count()"), "AND active")
        merging = self._count_by_table("merges", ("count()",))
        waiting = {
            "samples": (journal.get("rows", 0), journal.get("disk", 0)),
            "series": (journal.get("series", 0), 0),
        }
        return StoreStatistics(
            rows={table: counts[0] + waiting.get(table, (0, 0))[0] for table, counts in stored.items()},
            bytes={table: counts[1] + waiting.get(table, (0, 0))[1] for table, counts in stored.items()},
            parts={table: counts[2] for table, counts in stored.items()},
            merges={table: counts[0] for table, counts in merging.items()},
            journal=journal,
        )

    def _count_by_table(self, source: str, counted: Sequence[str], condition: str = "") -> dict[str, list[int]]:
        """Return a row of a system table for each of our tables, zeros for a table without one."""
        read = f"system.{source}"
        if self.target.cluster:
            read = f"clusterAllReplicas('{self.target.cluster}', {read})"
        names = {name_stored_table(table, self.target): table for table in _SIZED}
        with translate_failures("count its rows"), self.pool.borrow_client() as client:
            found = client.query(
                f"SELECT table, {', '.join(counted)} FROM {read} WHERE database = currentDatabase() {condition} "
                "AND table IN {tables:Array(String)} GROUP BY table",
                parameters={"tables": list(names)},
            ).result_rows
        counts = dict.fromkeys(_SIZED, [0] * len(counted))
        counts.update({names[table]: [int(one) for one in row] for table, *row in found})
        return counts

    def backup(self, directory: Path) -> None:
        """Write a copy into a folder on the engine's machine."""
        folder = _make_absolute(directory)
        if self.target.exclusive:
            _make_empty(folder)
        with self._rollup_job.pause():
            self._commit_log.flush()
            for name, tables in _PARTS:
                self._run("back up", "BACKUP", "TO", folder / name, tables)

    def restore(self, directory: Path) -> None:
        """Restore a copy. Raises ConfigurationError if a file of the backup is missing."""
        folder = _make_absolute(directory)
        present = {name: self._list_present(folder, name, names) for name, names in _PARTS}
        with self._pause_for_change():
            if self._is_occupied():
                raise ConflictError("a backup is restored into an empty store only, this one has samples")
            with translate_failures("restore"), self.pool.borrow_client() as client:
                for table in ("progress", "marks"):
                    client.command(f"TRUNCATE TABLE {table}{make_cluster_clause(self.target)}")
            for name, names in present.items():
                self._run("restore", "RESTORE", "FROM", folder / name, names)
            self.rollup_state.write_marks()
            self.rollup_state.reload()

    def flush(self) -> None:
        """Bring all durable samples and marks into the engine."""
        self._commit_log.flush()
        self.rollup_state.write_marks()

    def adopt(self, states: Sequence[RollupState]) -> None:
        """Take over rows that were copied into this engine, with the roll-up state of the engines that had them."""
        with self._pause_for_change():
            copy_states(states, self.pool)
            self.rollup_state.reload()

    @contextmanager
    def refuse_writes(
        self, reason: str = "the stored data are being moved: try again in some seconds"
    ) -> Iterator[Callable[[], None]]:
        """Refuse writes inside the block, and bring all durable rows into the engine first.

        The block gets a function. Once it is called, writes are refused for ever.
        """
        left = threading.Event()
        with self._rollup_job.pause():  # writes go on until a running roll-up has ended
            before = self._gate.close(reason)
        try:
            self.flush()
            yield left.set
        finally:
            self._gate.reset(MOVED if left.is_set() else before)

    @contextmanager
    def _pause_for_change(self) -> Iterator[None]:
        """Pause roll-ups, with all samples in the engine. Afterwards drop the caches about series.

        After a failure too: a part of the tables may have changed.
        """
        with self._rollup_job.pause(), self._gate.admit_write():
            self._commit_log.flush()
            try:
                yield
            finally:
                self._catalog.forget()
                self._commit_log.forget()

    def _list_present(self, folder: Path, name: str, names: Sequence[str]) -> list[str]:
        """Return the tables in a part of a backup. A backup from before a table existed lacks that table."""
        wanted = [table for table in names if table != "migrations"]
        if not self.target.exclusive:
            return wanted  # the folder is on another machine
        if not (folder / name / LIST).is_file():
            raise ConflictError(f"{folder} has no backup of a telemetry store")
        found = list_tables(folder / name, self.target.database)
        for table in wanted:
            if self._name_stored(table) not in found and table not in _LATER:
                raise ConfigurationError(f"the backup in {folder / name} is not complete: it has no table {table}")
        return [table for table in wanted if self._name_stored(table) in found]

    def _is_occupied(self) -> bool:
        with translate_failures("restore"), self.pool.borrow_client() as client:
            return any(client.query(f"SELECT 1 FROM {table} LIMIT 1").result_rows for table in _DATA)

    def _run(self, doing: str, verb: str, preposition: str, folder: Path, tables: Sequence[str]) -> None:
        names = sorted({name for table in tables for name in (table, self._name_stored(table))})
        listed = ", ".join(f"TABLE {self.target.database}.{name}" for name in names)
        options = " SETTINGS allow_non_empty_tables = 1, allow_different_table_def = 1" if verb == "RESTORE" else ""
        place = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        with translate_failures(doing), self.pool.borrow_client() as client:
            client.command(f"{verb} {listed}{make_cluster_clause(self.target)} {preposition} File('{place}'){options}")

    def _name_stored(self, table: str) -> str:
        return name_stored_table(table, self.target) if table in _SIZED else table


def _make_absolute(directory: Path) -> Path:
    return directory.expanduser().absolute()


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise UnavailableError(f"the backup folder cannot be made: {error.strerror}") from error
    if occupied:
        raise ConflictError(f"the backup folder {folder} is not empty")
