"""Reads raw samples from the engine, as a stream of bounded blocks."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import SampleColumns, SeriesKeys
from jobmeter.model.time import TimeRange
from jobmeter.store.base import ReadBudget
from jobmeter.store.clickhouse.decimals import VALUE
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.order import Order, find_latest
from jobmeter.store.clickhouse.pending import Pending, merge_streams
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.sql import iterate_key_pieces
from jobmeter.store.meter import BudgetMeter

_BUFFER = 2_000_000
"""Rows that a read buffers to sort them in an order other than the engine's."""
_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
_STREAMED: Mapping[str, Any] = MappingProxyType({"read_in_order_use_buffering": 0})
"""Settings for streamed reads: otherwise the engine reads ahead, with twice the memory."""

Columns = list[NDArray[Any]]
_TYPES = {"B": np.uint8, "H": np.uint16, "I": np.uint32, "L": np.uint64, "Q": np.uint64, "q": np.int64, "d": np.float64}


class ReadMeter(BudgetMeter):
    """The rest of a budget, also as settings of the engine."""

    def make_settings(self) -> dict[str, Any]:
        """Return the engine's settings for the rest of the budget. Raises QueryTimeoutError if no time is left."""
        return {"max_execution_time": f"{self.compute_seconds_left():.3f}", "timeout_overflow_mode": "throw"}


class SampleReader:
    """Reads samples. Safe for any number of threads; each stream occupies a connection until it ends."""

    def __init__(self, pool: Pool, pending: Callable[[], Pending]) -> None:
        self._pool = pool
        self._pending = pending

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Generator[SampleColumns]:
        """Yield blocks sorted by (index, time), without duplicates."""
        if not len(keys) or not span.length_ms:
            return
        meter = ReadMeter.start(budget)
        order = Order.from_keys(keys)
        if order.same:
            yield from self._stream(span, order, meter)
        else:
            yield from self._read_reordered(keys, span, order, meter)

    def read_blocks(
        self, sql: str, parameters: dict[str, Any], meter: ReadMeter, settings: Mapping[str, Any] = _DEFAULTS
    ) -> Generator[Columns]:
        """Yield the blocks of an answer as columns. Closing the iterator stops the engine's work."""
        with translate_failures("read samples"), self._pool.borrow_client() as client:
            every = {**meter.make_settings(), **settings}
            stream = client.query_column_block_stream(sql, parameters=parameters, settings=every)
            with stream as blocks:
                for block in blocks:
                    if len(block) and len(block[0]):
                        meter.take(len(block[0]))
                        yield [np.frombuffer(column, _TYPES[column.typecode]) for column in block]

    def _stream(self, span: TimeRange, order: Order, meter: ReadMeter) -> Generator[SampleColumns]:
        first, same = 0, order.same
        for some in iterate_key_pieces(order.keys):
            # Take the pending rows first: they may reach the engine meanwhile, and are then read twice.
            waiting = _meter_pieces(self._pending().split(some, span), meter)
            for block in merge_streams(self._read_indexed(some, span, meter), waiting):
                index = block.index + np.uint32(first) if first else block.index
                if not same:
                    index = order.position[index].astype(np.uint32)
                yield SampleColumns(index, block.time, block.value)
            first += len(some)

    def _read_indexed(self, keys: SeriesKeys, span: TimeRange, meter: ReadMeter) -> Generator[SampleColumns]:
        order = Order.from_keys(keys)
        for series, time, value, _ in self._read_unique(keys, span, meter):
            yield SampleColumns(order.index_rows(series, keys), time, value)

    def _read_unique(self, keys: SeriesKeys, span: TimeRange, meter: ReadMeter) -> Generator[Columns]:
        """Yield rows in the engine's order, without older copies of a sample. A block waits for the next one."""
        waiting: Columns | None = None
        parameters = make_key_parameters(keys) | {"start": span.start_ms, "end": span.end_ms}
        for block in self.read_blocks(_READ, parameters, meter, _STREAMED):
            following = block
            if waiting is not None:
                rows = _drop_older_copies(waiting)
                if rows[0][-1] == block[0][0] and rows[1][-1] == block[1][0]:
                    following = [np.concatenate((over[-1:], under)) for over, under in zip(rows, block, strict=True)]
                    rows = [column[:-1] for column in rows]
                if len(rows[0]):
                    yield rows
            waiting = following
        if waiting is not None:
            yield _drop_older_copies(waiting)

    def _read_reordered(
        self, keys: SeriesKeys, span: TimeRange, order: Order, meter: ReadMeter
    ) -> Generator[SampleColumns]:
        """Yield rows in the caller's order: a few rows in one read, many rows by groups of keys."""
        blocks_read: list[SampleColumns] = []
        rows = 0
        stream = self._stream(span, order, meter)
        for block in stream:
            blocks_read.append(block)
            rows += len(block)
            if rows > _BUFFER:
                break
        else:
            yield from _sort_blocks(blocks_read)
            return
        stream.close()
        del blocks_read
        for first, last in self._groups(keys, span, order, meter):
            some = keys.select(slice(first, last))
            inner = Order.from_keys(some)
            blocks = self._stream(span, inner, meter)
            for block in blocks if inner.same else _sort_blocks(blocks):
                yield SampleColumns(block.index + np.uint32(first), block.time, block.value)

    def _groups(self, keys: SeriesKeys, span: TimeRange, order: Order, meter: ReadMeter) -> list[tuple[int, int]]:
        """Return runs of consecutive keys with about ``_BUFFER`` rows at most; one key may have more."""
        counts = np.bincount(self._pending().select_samples(keys, span).index, minlength=len(keys))
        for some in iterate_key_pieces(order.keys):
            parameters = make_key_parameters(some) | {"start": span.start_ms, "end": span.end_ms}
            for series, count in self.read_blocks(_COUNT, parameters, meter):
                counts[order.index_rows(series, keys)] += count.astype(np.int64)
        edges = [0]
        total = 0
        for position, rows in enumerate(counts.tolist()):
            if total and total + rows > _BUFFER:
                edges.append(position)
                total = 0
            total += rows
        edges.append(len(keys))
        return list(pairwise(edges))


def make_key_parameters(keys: SeriesKeys) -> dict[str, Any]:
    """Return the parameters of ``KEYS``."""
    return {"jobs": keys.list_jobs(), "ids": keys.series.tolist()}


KEYS = "job IN {jobs:Array(UInt64)} AND series IN {ids:Array(UInt64)}"
# The virtual column gives the later of several copies: a part's lowest block number. Parts never share one, and a part
# has a sample only once. The engine reads in the table's own order; sorting by the block too would take it twice the
# time.
_SPAN = "time >= {start:Int64} AND time < {end:Int64}"
_READ = f"SELECT series, time, {VALUE}, _block_number FROM samples WHERE {KEYS} AND {_SPAN} ORDER BY job, series, time"
_COUNT = f"SELECT series, count() FROM samples WHERE {KEYS} AND {_SPAN} GROUP BY series"


def _meter_pieces(pieces: Iterator[SampleColumns], meter: ReadMeter) -> Iterator[SampleColumns]:
    for piece in pieces:
        meter.take(len(piece))
        yield piece


def _drop_older_copies(columns: Columns) -> Columns:
    """Return the last written copy of each sample."""
    chosen = find_latest(columns[0], columns[1], columns[3])
    return columns if chosen is None else [column[chosen] for column in columns]


def _sort_blocks(blocks: Iterable[SampleColumns]) -> Iterator[SampleColumns]:
    """Yield the rows of all blocks by index; rows of one index stay in their order."""
    joined = SampleColumns.concatenate([*blocks])
    if len(joined):
        yield joined.select(np.argsort(joined.index, kind="stable"))
