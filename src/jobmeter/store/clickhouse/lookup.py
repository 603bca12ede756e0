"""Small reads from the engine: roll-up rows, the sample before a time, first and last times."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import BucketColumns, Float64s, Int64s, SampleColumns, SeriesKeys
from jobmeter.model.time import DAY, HOUR, TimeRange, floor_to
from jobmeter.store.base import ReadBudget, Tier
from jobmeter.store.clickhouse.decimals import FIRST, LAST, MAXIMUM, MINIMUM, SUM, VALUE
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.order import Order, Positions, find_latest
from jobmeter.store.clickhouse.pending import Pending
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.reader import KEYS, Columns, ReadMeter, SampleReader, make_key_parameters
from jobmeter.store.clickhouse.rollup_state import RollupState
from jobmeter.store.clickhouse.sql import iterate_key_pieces, iterate_pieces

_TABLES = {Tier.MINUTE: "minutes", Tier.HOUR: "hours"}
_BUCKET = f"count, {SUM}, {MINIMUM}, {MAXIMUM}, {FIRST}, first_time, {LAST}, last_time, increase, elapsed"
_SPAN = "time >= {start:Int64} AND time < {end:Int64}"
_LAST_RAW = (
    f"SELECT series, max(time), argMax({VALUE}, (time, _block_number)) FROM samples "
    f"WHERE {KEYS} AND {_SPAN} GROUP BY series"
)
_LAST_HOUR = (
    f"SELECT series, max(last_time), argMax({LAST}, (last_time, _block_number)) FROM hours "
    f"WHERE {KEYS} AND {_SPAN} GROUP BY series"
)
_ANYTHING = (
    f"SELECT * FROM (SELECT 1 FROM samples WHERE {KEYS} AND {_SPAN} LIMIT 1 "
    f"UNION ALL SELECT 1 FROM hours WHERE {KEYS} AND {_SPAN} LIMIT 1)"
)
_TIMES_ROLLED = "SELECT job, min(first_time), max(last_time) FROM hours WHERE job IN {jobs:Array(UInt64)} GROUP BY job"
_TIMES_RAW = (
    f"SELECT job, min(time), max(time) FROM samples WHERE job IN {{jobs:Array(UInt64)}} AND {_SPAN} GROUP BY job"
)


class Lookup:
    """Implements the ``Store`` methods of the same names. Safe for any number of threads."""

    def __init__(
        self, pool: Pool, reader: SampleReader, rollup_state: RollupState, pending: Callable[[], Pending]
    ) -> None:
        self._pool = pool
        self._pending = pending
        self._reader = reader
        self._rollup_state = rollup_state

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """Return roll-up rows whose bucket start lies in ``span``."""
        meter = ReadMeter.start(budget)
        order = Order.from_keys(keys)
        sql = (
            f"SELECT series, time, {_BUCKET}, _block_number FROM {_TABLES[tier]} WHERE {KEYS} AND {_SPAN} "
            "ORDER BY job, series, time"
        )
        blocks: list[Columns] = []
        for some in iterate_key_pieces(order.keys):
            parameters = make_key_parameters(some) | {"start": span.start_ms, "end": span.end_ms}
            blocks += self._reader.read_blocks(sql, parameters, meter)
        if not blocks:
            return BucketColumns.make_empty()
        *columns, block = [np.concatenate(column) for column in zip(*blocks, strict=True)]
        keep = find_latest(columns[0], columns[1], block)
        if keep is not None:
            columns = [column[keep] for column in columns]
        columns[0] = order.index_rows(columns[0], keys)
        if not order.same:
            by_index = np.argsort(columns[0], kind="stable")
            columns = [column[by_index] for column in columns]
        return BucketColumns(*columns)

    def read_previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """Return each series' last sample before a time. Looks back an hour, a day, then to the beginning."""
        waiting = self._pending().find_previous(keys, before_ms)
        found = self._find_previous(keys, before_ms, ReadMeter.start(budget))
        found.put_newer(waiting)
        return found.make_columns()

    def _find_previous(self, keys: SeriesKeys, before_ms: int, meter: ReadMeter) -> "_Found":
        found = _Found(len(keys))
        near, far = max(0, before_ms - HOUR), max(0, before_ms - DAY)
        self._look(_LAST_RAW, keys, found, (near, before_ms), meter)
        late = found.find_missing()
        if found.complete or not self._has_any_sample(keys, found, before_ms, meter):
            return found
        for start, end in ((far, near), (0, far)):
            self._look(_LAST_RAW, keys, found, (start, end), meter)
        # The hours keep the last of the expired samples, even if a late sample lies before it.
        self._look(_LAST_HOUR, keys, found, (0, floor_to(before_ms, HOUR)), meter, late)
        return found

    def read_last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the times of the first and the last sample of each job key that has samples."""
        rows: list[Sequence[int]] = list(self._pending().list_times(jobs))
        done = self._rollup_state.read_done()
        late = sorted(hour for _, hour in self._rollup_state.find_marked(jobs))
        spans = [(done, 2**62)] + ([(late[0], min(late[-1] + HOUR, done))] if late else [])
        with translate_failures("read the times of jobs"), self._pool.borrow_client() as client:
            for part in iterate_pieces(sorted(set(jobs))):
                rows += client.query(_TIMES_ROLLED, parameters={"jobs": list(part)}).result_rows
                for start, end in spans:
                    parameters = {"jobs": list(part), "start": start, "end": end}
                    rows += client.query(_TIMES_RAW, parameters=parameters).result_rows
        times: dict[int, tuple[int, int]] = {}
        for job, first, last in rows:
            span = times.get(job, (first, last))
            times[job] = (min(first, span[0]), max(last, span[1]))
        return times

    def _has_any_sample(self, keys: SeriesKeys, found: "_Found", before_ms: int, meter: ReadMeter) -> bool:
        """Return True if a missing series has any sample before a time. Most have none: their job started later."""
        missing = found.find_missing()
        for some in iterate_key_pieces(keys.select(missing)):
            parameters = make_key_parameters(some) | {"start": 0, "end": before_ms}
            for _ in self._reader.read_blocks(_ANYTHING, parameters, meter):
                return True
        return False

    def _look(
        self,
        sql: str,
        keys: SeriesKeys,
        found: "_Found",
        between: tuple[int, int],
        meter: ReadMeter,
        places: Positions | None = None,
    ) -> None:
        """Search a time range for the missing keys, or for a later sample of the keys at some positions."""
        places = found.find_missing() if places is None else places
        sought = keys.select(places)
        order = Order.from_keys(sought)
        for some in iterate_key_pieces(sought):
            parameters = make_key_parameters(some) | {"start": between[0], "end": between[1]}
            for series, time, value in self._reader.read_blocks(sql, parameters, meter):
                found.put_later(places[order.index_rows(series, sought)], time, value)


class _Found:
    """At most one sample for each key."""

    def __init__(self, count: int) -> None:
        self._time = np.full(count, -1, np.int64)
        self._value = np.zeros(count, np.float64)

    @property
    def complete(self) -> bool:
        return bool((self._time >= 0).all())

    def find_missing(self) -> Positions:
        return np.flatnonzero(self._time < 0)

    def put_later(self, positions: Positions, time: Int64s, value: Float64s) -> None:
        """Put the samples that are later than the current ones."""
        self._put(positions, time, value, time > self._time[positions])

    def put_newer(self, columns: SampleColumns) -> None:
        """Put the samples that are at least as late as the current ones: they were written after them."""
        positions = columns.index.astype(np.intp)
        self._put(positions, columns.time, columns.value, columns.time >= self._time[positions])

    def _put(self, positions: Positions, time: Int64s, value: Float64s, chosen: NDArray[np.bool_]) -> None:
        self._time[positions[chosen]] = time[chosen]
        self._value[positions[chosen]] = value[chosen]

    def make_columns(self) -> SampleColumns:
        there = np.flatnonzero(self._time >= 0)
        return SampleColumns(there.astype(np.uint32), self._time[there], self._value[there])
