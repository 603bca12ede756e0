"""Samples that are stored but not in the engine yet, as a reader needs them."""

from collections.abc import Iterator, Sequence

import numpy as np

from jobmeter.model.batch import SampleColumns, SeriesKeys
from jobmeter.model.time import TimeRange
from jobmeter.store.clickhouse.order import last_of_each
from jobmeter.store.clickhouse.rows import Section


class Pending:
    """What was stored and may not be in the engine, at one moment, in the order in which it was stored."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections

    def samples(self, keys: SeriesKeys, span: TimeRange) -> SampleColumns:
        """The samples of some series in a span, sorted by (index, time), each once."""
        found = [part for section in self._sections if (part := section.select(keys, span)) is not None]
        if not found:
            return SampleColumns.empty()
        return _sorted(
            np.concatenate([part.index for part in found]),
            np.concatenate([part.time for part in found]),
            np.concatenate([part.value for part in found]),
        )

    def previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns:
        """For each series the last sample before a time, at most one row each."""
        found = self.samples(keys, TimeRange(0, max(0, before_ms)))
        if not len(found):
            return found
        last = np.append(found.index[1:] != found.index[:-1], True)
        return SampleColumns(found.index[last], found.time[last], found.value[last])

    def times(self, jobs: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Job key, first and last time of what is here of some jobs; a job may come several times."""
        job_keys = np.array(sorted(set(jobs)), np.uint64)
        for section in self._sections:
            rows = section.rows
            starts = rows.starts()
            least = np.minimum.reduceat(rows.time, starts)
            most = np.maximum.reduceat(rows.time, starts)
            chosen = np.flatnonzero(np.isin(rows.job, job_keys))
            yield from zip(rows.job[chosen].tolist(), least[chosen].tolist(), most[chosen].tolist(), strict=True)


NOTHING = Pending(())


def overlaid(stream: Iterator[SampleColumns], over: SampleColumns) -> Iterator[SampleColumns]:
    """A stream sorted by (index, time) with samples laid over it, which are so too: they win where both have one."""
    if not len(over):
        yield from stream
        return
    for block in stream:
        reached = _position(over, int(block.index[-1]), int(block.time[-1]))
        yield _merged(block, _cut(over, slice(0, reached))) if reached else block
        over = _cut(over, slice(reached, None))
    if len(over):
        yield over


def _position(columns: SampleColumns, index: int, time: int) -> int:
    """How many rows are at or before (index, time)."""
    first, last = np.searchsorted(columns.index, (index, index + 1)).tolist()
    return int(first + np.searchsorted(columns.time[first:last], time, "right"))


def _cut(columns: SampleColumns, part: slice) -> SampleColumns:
    return SampleColumns(columns.index[part], columns.time[part], columns.value[part])


def _merged(below: SampleColumns, over: SampleColumns) -> SampleColumns:
    return _sorted(
        np.concatenate([below.index, over.index]),
        np.concatenate([below.time, over.time]),
        np.concatenate([below.value, over.value]),
    )


def _sorted(
    index: "np.typing.NDArray[np.uint32]", time: "np.typing.NDArray[np.int64]", value: "np.typing.NDArray[np.float64]"
) -> SampleColumns:
    """The rows by (index, time); of those that are equal in both the last."""
    order = np.lexsort((time, index))
    index, time, value = index[order], time[order], value[order]
    keep = last_of_each(index, time)
    if keep is not None:
        index, time, value = index[keep], time[keep], value[keep]
    return SampleColumns(index, time, value)
