"""Damaged parts: those that the engine detached at its start, and those that could not be read since.

The engine checks a part's files at its start. If a file is missing or has another size, the engine moves the part to
the table's folder ``detached`` and continues without it. Flipped bits are found by a read, which fails. A part whose
folder is missing altogether leaves no trace.
"""

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from jobmeter.errors import JobmeterError
from jobmeter.model.time import DAY, SECOND, TimeRange
from jobmeter.store.clickhouse.failures import find_damaged_part, translate_failures
from jobmeter.store.clickhouse.part_files import read_job_range, read_row_count, read_time_range
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.segments import parse_lost_rows
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.damage import DamagedPart

_log = logging.getLogger(__name__)
AGAIN_SECONDS = 10.0
"""Seconds for which a list with parts is answered from memory: an operator soon sees the effect of a repair."""
_MOST = 1_000
_NAME = re.compile(r"(?P<partition>\w+?)_\d+_\d+_\d+(_\d+)?(_try\d+)?")
_DETACHED = (
    "SELECT DISTINCT table, name, reason, path FROM {source} "
    "WHERE database = currentDatabase() AND startsWith(reason, 'broken') ORDER BY table, name LIMIT {most}"
)
_ACTIVE = (
    "SELECT table, name FROM {source} WHERE database = currentDatabase() AND active AND name IN {{names:Array(String)}}"
)


class Damage:
    """The damaged parts of one engine, at most a thousand. Safe for any number of threads."""

    def __init__(self, pool: Pool, target: EngineTarget, journal: Path | None) -> None:
        """``journal`` is the folder of the journal, None without one."""
        self._pool = pool
        self._target = target
        self._journal = journal
        self._lock = threading.Lock()
        self._parts: Sequence[DamagedPart] = ()
        self._unreadable: dict[tuple[str, str], DamagedPart] = {}
        self._read_at = 0.0

    def list_parts(self) -> Sequence[DamagedPart]:
        """Return the damaged parts. Costs nothing while there are none: an engine detaches parts only at its start."""
        if self._parts and monotonic() - self._read_at >= AGAIN_SECONDS:
            self.refresh()
        return self._parts

    def refresh(self) -> Sequence[DamagedPart]:
        """Read and return the list of damaged parts. The previous list stays if the engine does not answer."""
        try:
            found = [*self._list_detached(), *self._list_unreadable(), *self._journal_files()]
        except (JobmeterError, OSError) as error:
            _log.warning("damaged parts could not be listed: %s", error)
            return self._parts
        with self._lock:
            self._parts = tuple(found[:_MOST])
            self._read_at = monotonic()
        return self._parts

    def note(self, error: Exception) -> None:
        """Remember the part that an error of the engine names, if the error means damaged data."""
        found = find_damaged_part(error)
        if found is None or found[:2] in self._unreadable or len(self._unreadable) >= _MOST:
            return
        table, name, place = found
        part = self._describe_part(DamagedPart(table=table, name=name, reason="unreadable", place=place))
        with self._lock:
            self._unreadable[found[:2]] = part
            self._parts = (*(one for one in self._parts if (one.table, one.name) != found[:2]), part)[:_MOST]
        _log.error("%s", make_advice(part))

    def _list_detached(self) -> Iterator[DamagedPart]:
        sql = _DETACHED.format(source=self._system("detached_parts"), most=_MOST)
        with translate_failures("list its damaged parts"), self._pool.borrow_client() as client:
            rows = client.query(sql).result_rows
        for table, name, reason, place in rows:
            plain = name.removeprefix(f"{reason}_")
            yield self._describe_part(DamagedPart(table=table, name=plain, reason=reason, place=place))

    def _list_unreadable(self) -> Iterator[DamagedPart]:
        """Yield the unreadable parts that the engine still has.

        A part that was dropped, detached or replaced is no longer damaged.
        """
        if not self._unreadable:
            return
        sql = _ACTIVE.format(source=self._system("parts"))
        with translate_failures("list its damaged parts"), self._pool.borrow_client() as client:
            rows = client.query(sql, parameters={"names": [name for _, name in self._unreadable]}).result_rows
        active = {(str(table), str(name)) for table, name in rows}
        with self._lock:
            self._unreadable = {key: part for key, part in self._unreadable.items() if key in active}
            yield from self._unreadable.values()

    def _journal_files(self) -> Iterator[DamagedPart]:
        if self._journal is None:
            return
        for path in sorted(self._journal.glob("*.damaged")):
            lost = parse_lost_rows(path.name)
            yield DamagedPart(
                table="journal",
                name=path.name,
                reason="damaged",
                rows=None if lost is None else lost.rows,
                at_most=lost is not None and lost.at_most,
                place=str(path),
            )

    def _describe_part(self, part: DamagedPart) -> DamagedPart:
        span = _partition_range(part)
        if not self._target.exclusive:
            return replace(part, span=span)
        folder = Path(part.place)
        return replace(
            part,
            rows=read_row_count(folder),
            span=read_time_range(folder) or span,
            jobs=read_job_range(folder, part.table),
        )

    def _system(self, table: str) -> str:
        name = f"system.{table}"
        return f"clusterAllReplicas('{self._target.cluster}', {name})" if self._target.cluster else name


def make_advice(part: DamagedPart) -> str:
    """Return the log message: the loss, and the action to take."""
    if part.table == "journal":
        return (
            f"a file of the journal was damaged: {part.summary}, which were acknowledged, are missing from answers. "
            f"Restore a backup into another data folder, or accept the loss: remove {part.place}"
        )
    if part.reason == "unreadable":
        return (
            f"a part of the telemetry store is damaged: {part.summary}. Questions that read it fail. Restore a backup "
            f"into another data folder, or give up the part: ALTER TABLE {part.table} DETACH PART '{part.name}'. "
            f"It lies in {part.place}"
        )
    return (
        f"a part of the telemetry store is damaged and was set aside: {part.summary}. Its rows are missing from "
        "answers. Restore a backup into another data folder; or bring the files in order and "
        f"ALTER TABLE {part.table} ATTACH PART '{Path(part.place).name}'; or accept the loss: remove {part.place}"
    )


def _partition_range(part: DamagedPart) -> TimeRange | None:
    """Return the span of a part's partition: a day of samples, a month of roll-ups."""
    found = _NAME.fullmatch(part.name)
    partition = found["partition"] if found else ""
    if not partition.isdigit():
        return None
    if part.table.startswith(("samples", "logs", "spans")):
        return TimeRange(int(partition) * DAY, (int(partition) + 1) * DAY)
    year, month = divmod(int(partition), 100)
    if not part.table.startswith(("minutes", "hours")) or not (1970 <= year < 9999 and 1 <= month <= 12):
        return None
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return TimeRange(_ms(datetime(year, month, 1, tzinfo=UTC)), _ms(following))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND
