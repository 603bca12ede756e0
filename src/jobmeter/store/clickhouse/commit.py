"""Samples to disk: columns, split where the engine needs it, and commits shared by those who wait."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import UnavailableError
from jobmeter.model.batch import Float64s, Int64s, Uint64s
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY
from jobmeter.store.clickhouse.failures import translated
from jobmeter.store.clickhouse.native import encode
from jobmeter.store.clickhouse.pool import Pool

Kind = TypeVar("Kind", bound=np.generic)

_ROWS = 1 << 20
_DAYS = 90
_ALONE = 100_000
_COLUMNS = ["job", "series", "time", "value", "raw_days", "minute_days", "hour_days"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Samples with their keys, in the order in which they count."""

    job: Uint64s
    series: Uint64s
    time: Int64s
    value: Float64s
    retention: Retention

    def __len__(self) -> int:
        return len(self.time)


class _Ticket:
    """One caller's rows on their way."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.turn = threading.Event()
        self.done = False
        self.error: Exception | None = None


class Committer:
    """Inserts rows durably.

    While one small insert is on its way, those who come wait, and the next insert carries them all: a disk that takes
    100 syncs a second still takes thousands of batches. Large batches go alone, beside it.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._busy = False

    def commit(self, rows: Rows) -> None:
        """Return when the rows are on disk; raise when they may not be."""
        if len(rows) >= _ALONE:
            self._insert([rows])
            return
        ticket = _Ticket(rows)
        with self._lock:
            self._waiting.append(ticket)
            if self._busy:
                leading = False
            else:
                leading = self._busy = True
        if not leading:
            ticket.turn.wait()
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error

    def _lead(self) -> None:
        with self._lock:
            group, self._waiting = self._waiting, []
        error: Exception | None = UnavailableError("keeping the samples was interrupted")
        try:
            self._insert([ticket.rows for ticket in group])
            error = None
        except Exception as caught:  # noqa: BLE001 - every waiter raises it for itself
            error = caught
        finally:
            with self._lock:
                following = self._waiting[0] if self._waiting else None
                self._busy = following is not None
            for ticket in group:
                ticket.error = error
                ticket.done = True
                ticket.turn.set()
            if following is not None:
                following.turn.set()

    def _insert(self, group: list[Rows]) -> None:
        with translated("keep samples"), self._pool.client() as client:
            for block in _blocks(group):
                client.raw_insert("samples", _COLUMNS, block, fmt="Native")


def _blocks(group: list[Rows]) -> Iterator[bytes]:
    """Native blocks of bounded length that touch a bounded number of days, each sample's rows in order."""
    job = _joined([rows.job for rows in group])
    series = _joined([rows.series for rows in group])
    time = _joined([rows.time for rows in group])
    value = _joined([rows.value for rows in group])
    days = [_days(group, name) for name in ("raw_days", "minute_days", "hour_days")]
    for chosen in _runs(time):
        yield encode(
            list(
                zip(
                    _COLUMNS,
                    [job[chosen], series[chosen], time[chosen], value[chosen], *(column[chosen] for column in days)],
                    strict=True,
                )
            )
        )


def _joined(arrays: list[NDArray[Kind]]) -> NDArray[Kind]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _days(group: list[Rows], name: str) -> NDArray[np.uint16]:
    values = np.fromiter((getattr(rows.retention, name) for rows in group), np.uint16, len(group))
    return np.repeat(values, [len(rows) for rows in group])


def _runs(time: Int64s) -> Iterator[slice | NDArray[np.intp]]:
    """Parts of the rows, in order within every day: an insert may touch at most 100 daily partitions."""
    if int(time.max()) // DAY - int(time.min()) // DAY < _DAYS:
        yield from (slice(start, start + _ROWS) for start in range(0, len(time), _ROWS))
        return
    day = time // DAY
    order = np.argsort(day, kind="stable")
    number = np.unique(day[order], return_inverse=True)[1]
    edges = np.searchsorted(number, np.arange(0, int(number[-1]) + _DAYS + 1, _DAYS))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield from (order[start : min(start + _ROWS, last)] for start in range(first, last, _ROWS))
