"""Expected contents of a store, computed sample by sample from a dictionary."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.catalog import CATALOG, Kind
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange, floor_to
from jobmeter.store.base import ReadBudget, Store, Tier

FOREVER = Retention(raw_days=36_500, minute_days=36_500, hour_days=36_500)

BUDGET = ReadBudget()

Samples = dict[tuple[Series, int], float]
"""Value by series and time (ms)."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Roll-up row; see ``jobmeter.model.batch.BucketColumns``."""

    count: int
    sum: float
    minimum: float
    maximum: float
    first: float
    first_time: int
    last: float
    last_time: int
    increase: float
    elapsed: int


def batch_of(rows: Samples | Sequence[tuple[tuple[Series, int], float]]) -> SampleBatch:
    """Convert samples to a batch in order; a list may contain duplicates."""
    samples = list(rows.items() if isinstance(rows, dict) else rows)
    series = list(dict.fromkeys(one for (one, _), _ in samples))
    position = {one: index for index, one in enumerate(series)}
    return SampleBatch(
        series,
        np.array([position[one] for (one, _), _ in samples], np.uint32),
        np.array([time for (_, time), _ in samples], np.int64),
        np.array([value for _, value in samples], np.float64),
    )


def read_all(store: Store, series: Sequence[Series], span: TimeRange, budget: ReadBudget = BUDGET) -> Samples:
    """Read all samples of some series in a range. Fail if blocks are unordered or repeat a sample."""
    found: Samples = {}
    last = (-1, -1)
    for block in store.read(SeriesKeys.from_series(series), span, budget):
        for index, time, value in zip(block.index.tolist(), block.time.tolist(), block.value.tolist(), strict=True):
            assert last < (index, time), "samples are out of order or repeated"
            last = (index, time)
            found[series[index], time] = value
    return found


def stored_buckets(
    store: Store, series: Sequence[Series], span: TimeRange, tier: Tier
) -> dict[tuple[Series, int], Bucket]:
    """Read the roll-up rows of a store."""
    columns = store.read_buckets(SeriesKeys.from_series(series), span, tier, BUDGET)
    names = list(Bucket.__dataclass_fields__)
    values = zip(*(getattr(columns, name).tolist() for name in names), strict=True)
    keys = list(zip(columns.index.tolist(), columns.time.tolist(), strict=True))
    assert keys == sorted(set(keys)), "buckets are out of order or repeated"
    return {(series[index], time): Bucket(*row) for (index, time), row in zip(keys, values, strict=True)}


def brute_buckets(
    stored: Samples, series: Sequence[Series], span: TimeRange, tier: Tier
) -> dict[tuple[Series, int], Bucket]:
    """Compute the expected roll-up rows for the buckets that begin in ``span``."""
    found: dict[tuple[Series, int], Bucket] = {}
    for one in series:
        samples = sorted((time, value) for (who, time), value in stored.items() if who == one)
        reference: tuple[int, float] | None = None
        for start, members in groupby(samples, key=lambda sample: floor_to(sample[0], tier)):
            bucket = list(members)
            if span.start_ms <= start < span.end_ms:
                found[one, start] = _bucket(one, bucket, reference)
            reference = bucket[-1]
    return found


def _bucket(series: Series, samples: list[tuple[int, float]], reference: tuple[int, float] | None) -> Bucket:
    values = [value for _, value in samples]
    increase, elapsed = 0.0, 0
    metric = CATALOG.get(series.metric)
    if metric is not None and metric.kind is Kind.COUNTER:
        before_time, before = reference or samples[0]
        elapsed = samples[-1][0] - before_time
        for value in values:
            increase += value - before if value >= before else value
            before = value
    return Bucket(
        count=len(samples),
        sum=sum(values),
        minimum=min(values),
        maximum=max(values),
        first=values[0],
        first_time=samples[0][0],
        last=values[-1],
        last_time=samples[-1][0],
        increase=increase,
        elapsed=elapsed,
    )
