"""Conversions of rows for tests, from and to lists of (series, time, value)."""

from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.store.clickhouse.rows import InsertBlock, SampleRuns, join_runs

Sample = tuple[int, int, float]
"""Series number, time, value. Series ``n`` belongs to job ``n // 3``."""

SHORT, LONG = Retention(raw_days=3), Retention(raw_days=30, minute_days=60, hour_days=90)
SAMPLES = st.lists(
    st.tuples(st.integers(1, 7), st.integers(0, 2**41), st.integers(-4, 4).map(lambda value: value / 4)), min_size=1
)
GROUPS = st.lists(st.tuples(SAMPLES, st.sampled_from([SHORT, LONG])), min_size=1, max_size=5)


def rows_of(samples: Sequence[Sample], retention: Retention = LONG) -> SampleRuns:
    """Return rows in that order, with a single run for consecutive samples of a series."""
    numbers = [number for number, _, _ in samples]
    starts = [at for at, number in enumerate(numbers) if not at or numbers[at - 1] != number]
    series = np.array([numbers[at] for at in starts], np.uint64)
    count = np.diff([*starts, len(samples)]).astype(np.int64)
    time = np.array([time for _, time, _ in samples], np.int64)
    return SampleRuns(
        SeriesKeys(series // 3, series),
        count,
        time,
        np.array([value for _, _, value in samples], np.float64),
        retention,
    )


def listed(groups: Iterable[SampleRuns]) -> list[tuple[int, int, int, float, tuple[int, ...]]]:
    """Return every row with all its columns."""
    return in_table(join_runs(list(groups)))


def in_table(table: InsertBlock) -> list[tuple[int, int, int, float, tuple[int, ...]]]:
    """Return every row of a table: job, series, time, value, days."""
    days = zip(*(column.tolist() for column in table.days), strict=True)
    keys = table.job.tolist(), table.series.tolist()
    return list(zip(*keys, table.time.tolist(), table.value.tolist(), days, strict=True))


def days_of(retention: Retention) -> tuple[int, ...]:
    """Return the retention days as rows carry them."""
    return retention.raw_days, retention.minute_days, retention.hour_days
