"""What a windowed store holds in memory: samples of the window, and lists of series that were asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jobmeter.model.batch import (
    Bools,
    BucketColumns,
    Int64s,
    LineColumns,
    References,
    SampleColumns,
    SeriesKeys,
    Uint8s,
)
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.store.base import Selector

if TYPE_CHECKING:
    from jobmeter.store.window.store import WindowedStore


class WindowMemory:
    """See ``jobmeter.store.base.Memory``."""

    def __init__(self, store: "WindowedStore") -> None:
        self._store = store
        self._window = store.window

    def series(self, selector: Selector) -> list[Series] | None:
        """See ``Memory.series``. The list is shared: callers leave it as it is."""
        return self._store.cached_series(selector)

    def buckets(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
        most: int | None = None,
    ) -> BucketColumns | None:
        """See ``Memory.buckets``."""
        return self._window.buckets(keys, span, step_ms, counters, references, most)

    def lines(
        self, keys: SeriesKeys, line: Int64s, how: Uint8s, span: TimeRange, step_ms: int, most: int
    ) -> LineColumns | None:
        """See ``Memory.lines``."""
        return self._window.lines(keys, line, how, span, step_ms, most)

    def previous(self, keys: SeriesKeys, before_ms: int) -> SampleColumns | None:
        """See ``Memory.previous``."""
        found = self._window.previous(keys, before_ms)
        return None if found is None else SampleColumns(np.arange(len(keys), dtype=np.uint32), *found)

    def written(self, keys: SeriesKeys) -> int | None:
        """See ``Memory.written``."""
        return self._window.written(keys)

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange] | None:
        """See ``Memory.rolled``."""
        return self._store.cached_rolled(jobs, span)
