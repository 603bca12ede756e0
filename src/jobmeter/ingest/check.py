"""What samples may be: refused as a whole, by the name of what is wrong, before anything of a request is kept."""

import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Float64s, SampleBatch
from jobmeter.model.catalog import CATALOG, Metric
from jobmeter.model.time import MAX_TIME_MS


def check_shape(batch: SampleBatch) -> None:
    """Refuse columns that do not belong together (fields ``value`` and ``series``)."""
    if not len(batch.index) == len(batch.time) == len(batch.value):
        raise InvalidRequestError(
            f"{len(batch.index)} series, {len(batch.time)} times and {len(batch.value)} values are not the same number",
            "value",
        )
    if len(batch) and int(batch.index.max()) >= len(batch.series):
        raise InvalidRequestError(f"a sample names series {int(batch.index.max())} of {len(batch.series)}", "series")


def check_times(batch: SampleBatch) -> None:
    """Refuse times before 1970 and after 2100 (field ``time``)."""
    if len(batch) and (int(batch.time.min()) < 0 or int(batch.time.max()) > MAX_TIME_MS):
        at = int(np.flatnonzero((batch.time < 0) | (batch.time > MAX_TIME_MS))[0])
        raise InvalidRequestError(
            f"time {int(batch.time[at])} of {_name(batch, at)} is not between 1970 and 2100 in milliseconds", "time"
        )


def check_values(batch: SampleBatch, lowest: Float64s, highest: Float64s, floor: float, ceiling: float) -> None:
    """Refuse what is not finite or lies outside the bounds of its metric (field ``value``).

    ``lowest`` and ``highest`` hold one entry for each of ``batch.series``; ``floor`` and ``ceiling`` are the largest of
    the former and the smallest of the latter.
    """
    if not len(batch):
        return
    low, high = batch.value.min(), batch.value.max()
    if low >= floor and high <= ceiling and np.isfinite((low, high)).all():
        return
    finite = np.isfinite(batch.value)
    if not finite.all():
        at = _first(~finite)
        raise InvalidRequestError(f"a value of {_name(batch, at)} is {batch.value[at]}: values must be finite", "value")
    outside = (batch.value < lowest[batch.index]) | (batch.value > highest[batch.index])
    if outside.any():
        at = _first(outside)
        name = batch.series[int(batch.index[at])].metric
        metric = CATALOG[name]
        raise InvalidRequestError(
            f"{name} {float(batch.value[at])!r} is outside of {_bounds(metric)}: is its unit {metric.unit!r}?",
            "value",
        )


def _first(mask: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(mask)[0])


def _bounds(metric: Metric) -> str:
    lowest = "-inf" if metric.minimum is None else f"{metric.minimum:g}"
    highest = "inf" if metric.maximum is None else f"{metric.maximum:g}"
    return f"[{lowest}, {highest}]"


def _name(batch: SampleBatch, at: int) -> str:
    series = batch.series[int(batch.index[at])]
    place = " ".join(name for name in (series.job, series.replica, series.node, series.device) if name)
    return f"{series.metric} ({place})" if place else series.metric
