"""Writes log lines to the engine and reads them back.

A line that was written twice is stored twice until the engine merges the copies. Duplicates are dropped here: ``LIMIT
BY`` and ``FINAL`` would both read all lines of a job for one page, where the plain query reads a page's granules.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_batch import LEVEL_CODES, LEVELS, LogBatch
from jobmeter.model.retention import Retention
from jobmeter.model.syslog import SEVERITIES
from jobmeter.store.base import PAGE_BYTES, LogSelector, ReadBudget
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.led_tables import LINES, SendRows, send_to_no_leader
from jobmeter.store.clickhouse.log_search import LEVEL, SETTINGS, SEVERITY, make_condition
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.reader import ReadMeter, SampleReader
from jobmeter.store.clickhouse.write_gate import WriteGate

_SPARE = 16
"""Rows that are read beyond a page, to make up for duplicates."""
_SKIPPED = 2_000
"""Lines of an offset that are read and dropped; for a larger offset only their keys are read."""

_TOO_MANY_ROWS = 158
"""The engine's error number for a query that would read more rows than it may."""
_KEY = ("time_ns", "replica", "attempt", "stream", "text")
# The virtual column gives the last of several copies of a line. Ordering by it would cost a hundredfold.
_COLUMNS = ", ".join(
    ("job", *_KEY, "node", "level", "facility", "severity", "tag", "about_job", "about_replica", "_block_number")
)
_ORDER = 6
"""Number of columns that identify a line."""
_Row = Sequence[Any]


class LogTable:
    """Implements ``jobmeter.store.base.LogStore``. Safe for any number of threads."""

    def __init__(
        self, write: Pool, read: Pool, reader: SampleReader, gate: WriteGate, send: SendRows = send_to_no_leader
    ) -> None:
        self._gate = gate
        self._send = send
        self._writes = write
        self._pool = read
        self._reader = reader

    def append(self, lines: Sequence[LogLine], retention: Retention = Retention()) -> None:  # noqa: B008 - frozen
        """Insert the lines; on return they are on disk."""
        if not lines or self._send(LINES, 0, lambda: (list(lines), retention)):
            return
        from jobmeter.store.clickhouse.log_blocks import encode_blocks  # noqa: PLC0415 - loads Arrow, 30 MiB, for lines alone

        with self._gate.admit_write(), translate_failures("keep log lines"), self._writes.borrow_client() as client:
            for block in encode_blocks(LogBatch.from_lines(lines), retention.raw_days):
                client.raw_insert("logs", None, block, fmt="ArrowStream")

    def read(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """Return one page, with totals if the query counts."""
        meter = ReadMeter.start(budget)
        projects = selector.keys
        lines = [_line(row, selector, projects) for row in self._page(selector, meter)]
        if sum(len(line.text.encode()) for line in lines) > PAGE_BYTES:
            raise _make_page_error()
        if not selector.count:
            return LogPage(lines)
        where = _Where.from_selector(selector)
        sql = f"SELECT count(), sum(length(text)) FROM logs FINAL WHERE {where.sql}"
        total, size = self._query(sql, where, meter)[0]
        return LogPage(lines, int(total), int(size))

    def _page(self, selector: LogSelector, meter: ReadMeter) -> list[_Row]:
        if not selector.limit:
            return []
        if selector.offset > _SKIPPED:
            begin = self._skip(selector, meter)
            if begin is None:
                return []
            selector = begin
        where = _Where.from_selector(selector)
        end = selector.offset + selector.limit
        most = end + _SPARE
        order = _order(descending=selector.descending, one=len(selector.keys) == 1)
        while True:
            sql = f"SELECT {_COLUMNS} FROM logs WHERE {where.sql} ORDER BY {order} LIMIT {most}"
            rows = self._query(sql, where, meter)
            once = _drop_duplicates(rows)
            # Copies of the last line may continue in unread rows; there is one line too many then.
            if len(rows) < most or len(once) > end:
                return once[selector.offset : end]
            most = 2 * most

    def _query(self, sql: str, where: "_Where", meter: ReadMeter) -> Sequence[_Row]:
        settings = meter.make_settings() | {"max_result_bytes": 4 * PAGE_BYTES, "result_overflow_mode": "throw"}
        if where.searches:
            settings |= {"max_rows_to_read": meter.rows, "read_overflow_mode": "throw", **SETTINGS}
        try:
            with translate_failures("read log lines"), self._pool.borrow_client() as client:
                rows: Sequence[_Row] = client.query(sql, parameters=where.parameters, settings=settings).result_rows
        except LimitExceededError as error:
            rows_read = getattr(error.__cause__, "code", None) == _TOO_MANY_ROWS
            raise (_make_rows_error(meter.rows) if rows_read else _make_page_error()) from error
        except QueryTimeoutError as error:
            raise _make_time_error(meter.seconds) from error
        return rows

    def _skip(self, selector: LogSelector, meter: ReadMeter) -> LogSelector | None:
        """Return the query for the lines after the offset; None if there are none.

        Only the keys of the skipped lines are read, as numbers.
        """
        where = _Where.from_selector(selector)
        left = selector.offset
        sql = (
            f"SELECT time_ns, cityHash64(replica, attempt, stream, text) FROM logs WHERE {where.sql} "
            f"ORDER BY {_order(descending=selector.descending, one=len(selector.keys) == 1)}"
        )
        before: tuple[int, int] | None = None
        same = 0  # skipped lines at the last time
        for time, digest in self._reader.read_blocks(sql, where.parameters, meter):
            fresh = np.append(True, (time[1:] != time[:-1]) | (digest[1:] != digest[:-1]))
            fresh[0] = before != (int(time[0]), int(digest[0]))
            places = np.flatnonzero(fresh)
            if len(places) > left:
                at = int(time[places[left]])
                within = int(np.count_nonzero(time[places[:left]] == at))
                passed = within + (same if before is not None and before[0] == at else 0)
                return selector.continue_from(at, passed)
            left -= len(places)
            last = int(time[-1])
            within = int(np.count_nonzero(time[places] == last))
            same = within + (same if before is not None and before[0] == last else 0)
            before = last, int(digest[-1])
        return None


class _Where(msgspec.Struct, frozen=True):
    """Conditions with their bound parameters."""

    sql: str
    parameters: dict[str, Any]
    searches: bool

    @classmethod
    def from_selector(cls, selector: LogSelector) -> "_Where":
        """Return the conditions of a selector."""
        least = None if selector.min_level is None else LEVEL_CODES[selector.min_level]
        given: list[tuple[str, str, Any]] = [
            *_place(selector),
            ("time_ns >= {start:Int64}", "start", selector.start_ns),
            ("time_ns < {end:Int64}", "end", selector.end_ns),
            ("replica IN {replicas:Array(String)}", "replicas", sorted(selector.replicas) or None),
            ("attempt = {attempt:UInt32}", "attempt", selector.attempt),
            ("stream = {stream:String}", "stream", selector.stream or None),
            (f"{'level' if selector.job else LEVEL} >= {{least:UInt8}}", "least", least),
            ("positionCaseInsensitiveUTF8(text, {part:String}) > 0", "part", selector.contains or None),
        ]
        present = [(sql, name, value) for sql, name, value in given if value is not None]
        conditions = [sql for sql, _, _ in present]
        parameters = {name: value for _, name, value in present}
        if selector.query is not None:
            found = make_condition(selector.query, selector.job)
            conditions.append(found.sql)
            parameters |= found.parameters
        searches = selector.query is not None or bool(selector.contains)
        return cls(" AND ".join(conditions), parameters, searches)


def _place(selector: LogSelector) -> list[tuple[str, str, Any]]:
    """Return the conditions for the key of the lines, and those for system logs."""
    keys = list(selector.keys)
    one = len(keys) == 1
    return [
        ("job = {job:UInt64}", "job", keys[0] if one else None),
        ("job IN {jobs:Array(UInt64)}", "jobs", None if one else keys),
        ("node = {node:String}", "node", selector.node or None),
        (f"{SEVERITY} <= {{severity:UInt8}}", "severity", selector.max_severity),
    ]


def _order(*, descending: bool, one: bool = True) -> str:
    suffix = " DESC" if descending else ""
    # A single key comes first: the engine then reads in this order. Otherwise it comes last.
    columns = ("job", *_KEY) if one else (*_KEY, "job")
    return ", ".join(f"{column}{suffix}" for column in columns)


def _drop_duplicates(rows: Sequence[_Row]) -> list[_Row]:
    """Remove duplicate rows; the last written copy of each line stays."""
    once: list[_Row] = []
    for row in rows:
        if once and once[-1][:_ORDER] == row[:_ORDER]:
            once[-1] = max(once[-1], row, key=_read_write_number)
        else:
            once.append(row)
    return once


def _read_write_number(row: _Row) -> int:
    number: int = row[-1]
    return number


def _line(row: _Row, selector: LogSelector, projects: Mapping[int, str]) -> LogLine:
    key, time_ns, replica, attempt, stream, text, node, level, facility, severity, tag, job, about, _ = row
    return LogLine(
        time_ns=time_ns,
        text=text,
        job=job if facility else selector.job,
        project=projects[key],
        replica=about if facility else replica,
        attempt=attempt,
        node=node,
        stream=stream,
        level=LEVELS[level],
        facility=facility,
        severity=severity if severity < len(SEVERITIES) else None,
        tag=tag,
    )


def _make_rows_error(rows: int) -> LimitExceededError:
    return LimitExceededError(
        f"the search would read more than {rows} lines, the most that one may (JOBMETER_LIMIT_QUERY_ROWS): narrow its "
        "range, or add a word that few lines have",
        "range",
    )


def _make_time_error(seconds: float) -> QueryTimeoutError:
    return QueryTimeoutError(
        f"the search took longer than the {seconds:g} s that it may (JOBMETER_LIMIT_QUERY_SECONDS) and was stopped: "
        "narrow its range, or add a word that few lines have"
    )


def _make_page_error() -> LimitExceededError:
    return LimitExceededError(f"a page of lines may have {PAGE_BYTES} bytes: lower the limit", "limit")
