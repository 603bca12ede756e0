"""From series to the lines of an answer: pure functions over arrays."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from jobmeter.dialects.foas.metric_json import LineLimit, MetricRequest, Take
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.time import SECOND
from jobmeter.query.request import Statistic


class Points(msgspec.Struct, frozen=True, eq=False):
    """One series in steps: its tags; ``time`` int64[k] step starts in ms, ascending; ``value`` float64[k], finite."""

    tags: Mapping[str, str]
    time: Int64s
    value: Float64s


class Drawn(msgspec.Struct, frozen=True, eq=False):
    """One line: ``seconds`` int64[k] since the epoch, ascending, ``values`` float64[k], finite; k is above 0."""

    metric: str
    tags: dict[str, str]
    seconds: Int64s
    values: Float64s

    @property
    def summary(self) -> float:
        """The mean of the points."""
        return mean(self.values)


def fits(sub_query: MetricRequest, tags: Mapping[str, str]) -> bool:
    """True when a series has every tag of the query, with one of its values."""
    return all(name in tags and (not allowed or tags[name] in allowed) for name, allowed in sub_query.tags)


def draw(sub_query: MetricRequest, series: Sequence[Points], limit: LineLimit | None) -> list[Drawn]:
    """The lines of one query: one without tags, one for each combination of the values of its tags.

    In the order of their first series.
    """
    groups: dict[tuple[str, ...], list[Points]] = {}
    for one in series:
        if len(one.time) and fits(sub_query, one.tags):
            groups.setdefault(tuple(one.tags[name] for name, _ in sub_query.tags), []).append(one)
    names = [name for name, _ in sub_query.tags]
    drawn = [_merged(sub_query, members, dict(zip(names, values, strict=True))) for values, members in groups.items()]
    drawn = [line for line in drawn if len(line.seconds)]
    return drawn if limit is None else chosen(drawn, limit)


def chosen(lines: Sequence[Drawn], limit: LineLimit) -> list[Drawn]:
    """At most so many lines, in the order that they had.

    ``above`` takes those of the largest values, ``bottom`` those of the smallest, ``sample`` spreads its choice evenly
    over all of them, ordered by that value.
    """
    if len(lines) <= limit.count:
        return list(lines)
    judged = [_JUDGES[limit.judged_by](line.values) for line in lines]
    order = sorted(range(len(lines)), key=judged.__getitem__)
    if limit.take is Take.BOTTOM:
        taken = order[: limit.count]
    elif limit.take is Take.ABOVE:
        taken = order[-limit.count :]
    elif limit.count == 1:
        taken = [order[(len(order) - 1) // 2]]
    else:
        last = len(order) - 1
        taken = [order[at * last // (limit.count - 1)] for at in range(limit.count)]
    return [lines[at] for at in sorted(taken)]


def mean(values: Float64s) -> float:
    """The mean, exact but for one rounding."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(values / len(values))


def _merged(sub_query: MetricRequest, series: Sequence[Points], tags: dict[str, str]) -> Drawn:
    time = np.concatenate([one.time for one in series]) // sub_query.granularity_ms * sub_query.granularity_ms
    order = np.argsort(time, kind="stable")
    time, value = time[order], np.concatenate([one.value for one in series])[order]
    starts = np.flatnonzero(np.r_[True, time[1:] != time[:-1]])
    with np.errstate(over="ignore"):
        joined = _REDUCE[sub_query.aggregator].reduceat(value, starts)
        if sub_query.aggregator is Statistic.MEAN:
            joined = joined / np.diff(np.r_[starts, len(time)])
    finite = np.isfinite(joined)
    return Drawn(sub_query.metric, tags, time[starts][finite] // SECOND, joined[finite])


_JUDGES: dict[str, Callable[[Float64s], float]] = {
    "avg": mean,
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
}

_REDUCE: dict[Statistic, np.ufunc] = {
    Statistic.MEAN: np.add,
    Statistic.SUM: np.add,
    Statistic.MIN: np.minimum,
    Statistic.MAX: np.maximum,
}
