"""What a windowed store can say without its engine: for answers that must not wait."""

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from jobmeter.errors import NotAtOnceError
from jobmeter.model.batch import Bools, BucketColumns, References, SampleColumns, SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.store.base import ReadBudget, Selector

if TYPE_CHECKING:
    from jobmeter.store.window.store import WindowedStore

MOST_SERIES = 2_000
MOST_SAMPLES = 100_000
"""More than that takes longer than others may be kept waiting."""


class Recalled:
    """The reading half of ``Store``, as far as it is known at once; anything else raises NotAtOnceError."""

    def __init__(self, store: "WindowedStore") -> None:
        self._store = store

    def find(self, selector: Selector) -> list[Series]:
        """See ``Store.find``."""
        known = self._store.found(selector)
        if known is None:
            raise NotAtOnceError
        return known

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Iterator[SampleColumns]:  # noqa: ARG002
        """See ``Store.read``."""
        columns = self._store.window.read(keys, span, most=MOST_SAMPLES) if len(keys) <= MOST_SERIES else None
        if columns is None:
            raise NotAtOnceError
        yield columns

    def recent(
        self,
        keys: SeriesKeys,
        span: TimeRange,
        step_ms: int,
        counters: Bools,
        references: References,
    ) -> BucketColumns | None:
        """See ``Store.recent``."""
        if len(keys) > MOST_SERIES:
            raise NotAtOnceError
        return self._store.window.buckets(keys, span, step_ms, counters, references, MOST_SAMPLES)

    def written(self, keys: SeriesKeys) -> int | None:
        """See ``Store.written``."""
        return self._store.written(keys)

    def previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:  # noqa: ARG002
        """See ``Store.previous``."""
        found = self._store.window.previous(keys, before_ms)
        if found is None:
            raise NotAtOnceError
        return SampleColumns(np.arange(len(keys), dtype=np.uint32), *found)

    def rolled(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """See ``Store.rolled``."""
        known = self._store.known_rolled(jobs, span)
        if known is None:
            raise NotAtOnceError
        return known

    def revision(self, jobs: Sequence[int]) -> Hashable:
        """See ``Store.revision``."""
        return self._store.revision(jobs)

    def __getattr__(self, name: str) -> NoReturn:
        raise NotAtOnceError
