"""The value of a query over a grid of times."""

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.promql.budget import EvaluationBudget
from jobmeter.promql.evaluation import LOOKBACK_MS, Evaluation, Reader
from jobmeter.promql.nodes import Node, Subquery, VectorSelector
from jobmeter.promql.values import Value, Vector, drop_absent, resolve_names
from jobmeter.promql.windows import WindowSamples

MOST_VALUES = 50_000_000
"""Default limit of the values that a query computes: about a second, and half a gigabyte of memory."""


class EvaluatedQuery(msgspec.Struct, frozen=True, eq=False):
    """Value of a query, with warnings and notes for the caller."""

    value: Value
    warnings: list[str]
    infos: list[str]


def evaluate(
    node: Node,
    reader: Reader,
    times: Int64s,
    *,
    step_ms: int = 0,
    lookback_ms: int = LOOKBACK_MS,
    delayed_names: bool = False,
    most: int = MOST_VALUES,
) -> EvaluatedQuery:
    """Compute a node at each of ``times``, int64 in ms, which are ``step_ms`` apart.

    ``most`` is the approximate limit of computed values. With ``delayed_names``, void names are dropped at the end of
    the query, as behind Prometheus' flag, instead of in each function. Raises QueryError for ambiguous samples,
    LimitExceededError above the limit.
    """
    bounds = int(times[0]), int(times[-1])
    evaluation = Evaluation(reader, bounds, step_ms, lookback_ms, EvaluationBudget(most), delayed_names=delayed_names)
    with np.errstate(all="ignore"):
        value = evaluation.evaluate(node, times)
    if isinstance(value, Vector):
        value = drop_absent(resolve_names(value))
    return EvaluatedQuery(value, list(evaluation.warnings), list(evaluation.infos))


def read_range(
    node: VectorSelector | Subquery,
    reader: Reader,
    time_ms: int,
    *,
    lookback_ms: int = LOOKBACK_MS,
    most: int = MOST_VALUES,
) -> WindowSamples:
    """Return the samples of a range at one time, for a query that is only a range. Raises as ``evaluate``."""
    times = np.array([time_ms], np.int64)
    windows = Evaluation(reader, (time_ms, time_ms), 0, lookback_ms, EvaluationBudget(most)).read_windows(node, times)
    low, high = windows.low[:, 0], np.maximum(windows.high[:, 0], windows.low[:, 0])
    kept = np.nonzero(high > low)[0]
    taken = [np.arange(low[row], high[row]) for row in kept.tolist()]
    index = np.concatenate(taken) if taken else np.empty(0, np.int64)
    samples = windows.samples
    starts = np.concatenate(([0], np.cumsum((high - low)[kept])))
    labels = [samples.labels[row] for row in kept.tolist()]
    return WindowSamples(labels, samples.times[index], samples.values[index], starts, expired=samples.expired)
