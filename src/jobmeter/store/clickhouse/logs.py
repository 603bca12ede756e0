"""Log lines to the engine and back.

What was written twice is there twice until the engine merges it, and is dropped here: ``LIMIT BY`` and ``FINAL`` would
both read all lines of a job for one page of them, where the plain question reads a page's granules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from jobmeter.errors import LimitExceededError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.retention import Retention
from jobmeter.model.series import job_key
from jobmeter.model.time import DAY
from jobmeter.store.base import PAGE_BYTES, LogSelector, ReadBudget
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.reader import Meter, Reader

_LINES = 50_000
_BYTES = 16 * 2**20
_DAYS = 90
_DAY_NS = DAY * 1_000_000
_CODES = {level: code for code, level in enumerate(Level, 1)}
_LEVELS: dict[int, Level | None] = {0: None, **{code: level for level, code in _CODES.items()}}
_SPARE = 16
"""Rows that are read beyond a page, in case some are there twice."""
_SKIPPED = 2_000
"""Lines that are read and thrown away; of more only their keys are."""

_KEY = ("time_ns", "replica", "attempt", "stream", "text")
# The virtual column tells what was written last of what was written twice. To order by it would cost a hundredfold.
_COLUMNS = ", ".join((*_KEY, "node", "level", "_block_number"))
_Row = Sequence[Any]


class LogWriter:
    """See ``Store.append_logs``. Safe for any number of threads."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def append(self, lines: Sequence[LogLine], retention: Retention) -> None:
        """Insert the lines; on return they are on disk."""
        if not lines:
            return
        with translated("keep log lines"), self._pool.client() as client:
            for block in _blocks(lines, retention.raw_days):
                client.raw_insert("logs", None, block, fmt="JSONEachRow")


class LogReader:
    """See ``Store.read_logs``. Safe for any number of threads."""

    def __init__(self, pool: Pool, reader: Reader) -> None:
        self._pool = pool
        self._reader = reader

    def read(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """One page, and the totals where they are asked for."""
        meter = Meter.of(budget)
        lines = [_line(row, selector) for row in self._page(selector, meter)]
        if sum(len(line.text.encode()) for line in lines) > PAGE_BYTES:
            raise _too_large()
        if not selector.count:
            return LogPage(lines)
        where = _Where.of(selector)
        sql = f"SELECT count(), sum(length(text)) FROM logs FINAL WHERE {where.sql}"
        total, size = self._query(sql, where, meter)[0]
        return LogPage(lines, int(total), int(size))

    def _page(self, selector: LogSelector, meter: Meter) -> list[_Row]:
        if not selector.limit:
            return []
        if selector.offset > _SKIPPED:
            begin = self._skip(selector, meter)
            if begin is None:
                return []
            selector = begin
        where = _Where.of(selector)
        wanted = selector.offset + selector.limit
        most = wanted + _SPARE
        order = _order(descending=selector.descending)
        while True:
            sql = f"SELECT {_COLUMNS} FROM logs WHERE {where.sql} ORDER BY {order} LIMIT {most}"
            try:
                rows = self._query(sql, where, meter)
            except LimitExceededError as error:
                raise _too_large() from error
            once = _once(rows)
            # The last one may go on in what was not read; it is one too many then.
            if len(rows) < most or len(once) > wanted:
                return once[selector.offset : wanted]
            most = 2 * most

    def _query(self, sql: str, where: "_Where", meter: Meter) -> Sequence[_Row]:
        settings = meter.settings() | {"max_result_bytes": 4 * PAGE_BYTES, "result_overflow_mode": "throw"}
        with translated("read log lines"), self._pool.client() as client:
            rows: Sequence[_Row] = client.query(sql, parameters=where.parameters, settings=settings).result_rows
        return rows

    def _skip(self, selector: LogSelector, meter: Meter) -> LogSelector | None:
        """The same question for what follows the offset; None where nothing does.

        Only the keys of what is passed over are read, as numbers.
        """
        where = _Where.of(selector)
        left = selector.offset
        sql = (
            f"SELECT time_ns, cityHash64(replica, attempt, stream, text) FROM logs WHERE {where.sql} "
            f"ORDER BY {_order(descending=selector.descending)}"
        )
        before: tuple[int, int] | None = None
        same = 0  # lines of the last time that were passed over
        for time, digest in self._reader.blocks(sql, where.parameters, meter):
            fresh = np.append(True, (time[1:] != time[:-1]) | (digest[1:] != digest[:-1]))
            fresh[0] = before != (int(time[0]), int(digest[0]))
            places = np.flatnonzero(fresh)
            if len(places) > left:
                at = int(time[places[left]])
                within = int(np.count_nonzero(time[places[:left]] == at))
                passed = within + (same if before is not None and before[0] == at else 0)
                return _from(selector, at, passed)
            left -= len(places)
            last = int(time[-1])
            within = int(np.count_nonzero(time[places] == last))
            same = within + (same if before is not None and before[0] == last else 0)
            before = last, int(digest[-1])
        return None


@dataclass(frozen=True, slots=True)
class _Where:
    """Conditions with what is bound to them."""

    sql: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, selector: LogSelector) -> "_Where":
        """The conditions of a selector."""
        least = None if selector.min_level is None else _CODES[selector.min_level]
        given: list[tuple[str, str, Any]] = [
            ("job = {job:UInt64}", "job", job_key(selector.project, selector.job)),
            ("time_ns >= {start:Int64}", "start", selector.start_ns),
            ("time_ns < {end:Int64}", "end", selector.end_ns),
            ("replica IN {replicas:Array(String)}", "replicas", sorted(selector.replicas) or None),
            ("attempt = {attempt:UInt32}", "attempt", selector.attempt),
            ("stream = {stream:String}", "stream", selector.stream or None),
            ("level >= {least:UInt8}", "least", least),
            ("positionCaseInsensitiveUTF8(text, {part:String}) > 0", "part", selector.contains or None),
        ]
        known = [(sql, name, value) for sql, name, value in given if value is not None]
        return cls(" AND ".join(sql for sql, _, _ in known), {name: value for _, name, value in known})


def _order(*, descending: bool) -> str:
    suffix = " DESC" if descending else ""
    return ", ".join(f"{column}{suffix}" for column in ("job", *_KEY))


def _from(selector: LogSelector, time_ns: int, passed: int) -> LogSelector:
    """The same question from a time on, of which some lines are passed over."""
    if selector.descending:
        return replace(selector, end_ns=time_ns + 1, offset=passed)
    return replace(selector, start_ns=time_ns, offset=passed)


def _once(rows: Sequence[_Row]) -> list[_Row]:
    """The rows without repetitions; of each line the one that was written last."""
    once: list[_Row] = []
    for row in rows:
        if once and once[-1][:5] == row[:5]:
            once[-1] = max(once[-1], row, key=_written)
        else:
            once.append(row)
    return once


def _written(row: _Row) -> int:
    number: int = row[-1]
    return number


def _line(row: _Row, selector: LogSelector) -> LogLine:
    time_ns, replica, attempt, stream, text, node, level, _ = row
    return LogLine(
        time_ns=time_ns,
        text=text,
        job=selector.job,
        project=selector.project,
        replica=replica,
        attempt=attempt,
        node=node,
        stream=stream,
        level=_LEVELS[level],
    )


def _blocks(lines: Sequence[LogLine], raw_days: int) -> Iterator[bytes]:
    """JSON lines of bounded length that touch a bounded number of days: an insert may touch at most 100 partitions."""
    block: list[bytes] = []
    days: set[int] = set()
    size = 0
    for line in sorted(lines, key=lambda line: line.time_ns // _DAY_NS):
        day = line.time_ns // _DAY_NS
        if block and (len(block) >= _LINES or size >= _BYTES or (day not in days and len(days) >= _DAYS)):
            yield b"\n".join(block)
            block, days, size = [], set(), 0
        encoded = msgspec.json.encode(
            {
                "job": job_key(line.project, line.job),
                "time_ns": line.time_ns,
                "replica": line.replica,
                "attempt": line.attempt,
                "stream": line.stream,
                "text": line.text,
                "node": line.node,
                "level": _CODES[line.level] if line.level is not None else 0,
                "raw_days": raw_days,
            }
        )
        block.append(encoded)
        days.add(day)
        size += len(encoded)
    if block:
        yield b"\n".join(block)


def _too_large() -> LimitExceededError:
    return LimitExceededError(f"a page of lines may have {PAGE_BYTES} bytes: ask for fewer lines", "limit")
