"""Evaluates a query: computes the value of each of its nodes."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.promql import functions, over_time
from jobmeter.promql.aggregate import JOINED, aggregate
from jobmeter.promql.binary import apply_operator
from jobmeter.promql.budget import LOOPED, EvaluationBudget
from jobmeter.promql.histograms import Notes, compute_fraction, compute_quantile, evaluate_histograms
from jobmeter.promql.labels import Labels, get_value, make_labels, set_label
from jobmeter.promql.nodes import (
    NAME,
    Aggregation,
    Binary,
    Bound,
    FunctionCall,
    Negation,
    Node,
    Number,
    Subquery,
    Text,
    VectorMatch,
    VectorSelector,
)
from jobmeter.promql.numbers import format_plain
from jobmeter.promql.values import (
    QueryError,
    Scalar,
    String,
    Value,
    Vector,
    drop_absent,
    make_empty_vector,
    resolve_names,
)
from jobmeter.promql.windows import Windows, WindowSamples, find_windows, is_stale

LOOKBACK_MS = 300_000
"""Age in ms up to which a sample is the current value of its series."""
DEFAULT_STEP_MS = 60_000
"""Step in ms of subqueries without a step."""
MOST_STEPS = 1_000_000
"""Most steps of a subquery."""
EXPIRED = "samples in the range have expired, and their roll-ups cannot answer this query: values omit these samples"
"""Note of an answer that omits samples whose retention has passed."""
_SECOND = 1000.0
_FORCED = (
    "input to histogram_quantile needed to be fixed for monotonicity "
    "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
)
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")


class Reader(Protocol):
    """Gives the samples of selectors."""

    def read(self, selector: VectorSelector, start_ms: int, end_ms: int) -> WindowSamples:
        """Return the samples in ``(start_ms, end_ms]`` of each series that the selector matches."""


class Evaluation:
    """The evaluation of a query: its bounds, its warnings and notes."""

    def __init__(
        self,
        reader: Reader,
        bounds: tuple[int, int],
        step_ms: int,
        lookback_ms: int,
        budget: EvaluationBudget,
        *,
        delayed_names: bool = False,
    ) -> None:
        self._reader = reader
        self._budget = budget
        self._start_ms, self._end_ms = bounds
        self._step_ms = step_ms
        self._lookback_ms = lookback_ms
        self._delayed_names = delayed_names
        self.warnings: dict[str, None] = {}
        self.infos: dict[str, None] = {}

    def evaluate(self, node: Node, times: Int64s) -> Value:
        """Return the value of a node at these times."""
        self._budget.spend(len(times))
        match node:
            case Number(value=number):
                return Scalar(np.full(len(times), number))
            case Text(value=text):
                return String(text)
            case VectorSelector():
                return self._evaluate_instant(node, times)
            case Negation(inner=inner):
                found = self.evaluate(inner, times)
                if isinstance(found, Vector):
                    return self._resolve_unique_names(found.transform(-found.values))
                return Scalar(-self._require_scalar(found))
            case Binary():
                joined = apply_operator(
                    node, self.evaluate(node.left, times), self.evaluate(node.right, times), self._budget
                )
                return self._resolve_names(joined) if isinstance(joined, Vector) else joined
            case Aggregation():
                return self._aggregation(node, times)
            case FunctionCall():
                return self._call(node, times)
            case Subquery():
                raise QueryError("a subquery needs a function of ranges around it")

    def _resolve_names(self, vector: Vector) -> Vector:
        return vector if self._delayed_names else resolve_names(vector)

    def _resolve_unique_names(self, vector: Vector) -> Vector:
        """Drop void names. Raises QueryError if two series then have the same labels, even at different times."""
        vector = drop_absent(vector)
        named = self._resolve_names(vector)
        if not self._delayed_names and len(named.labels) < len(vector.labels):
            raise QueryError("vector cannot contain metrics with the same labelset")
        return named

    def _vector(self, node: Node, times: Int64s) -> Vector:
        found = self.evaluate(node, times)
        if isinstance(found, Vector):
            return found
        raise QueryError("an instant vector is needed here")

    def _scalar(self, node: Node, times: Int64s) -> Float64s:
        return self._require_scalar(self.evaluate(node, times))

    @staticmethod
    def _require_scalar(found: Value) -> Float64s:
        if isinstance(found, Scalar):
            return found.values
        raise QueryError("a number is needed here")

    def _text(self, node: Node) -> str:
        if isinstance(node, Text):
            return node.value
        raise QueryError("a text is needed here")

    def _shift_times(self, node: VectorSelector | Subquery, times: Int64s) -> Int64s:
        """Return the times of evaluation after ``@`` and ``offset``."""
        at = node.at
        if at is not None:
            bounds = {Bound.START: self._start_ms, Bound.END: self._end_ms}
            times = np.full(len(times), bounds[at] if isinstance(at, Bound) else at, np.int64)
        return times - node.offset_ms

    def _evaluate_instant(self, node: VectorSelector, times: Int64s) -> Vector:
        ends = self._shift_times(node, times)
        samples = self._read(node, ends, self._lookback_ms)
        self._budget.spend(len(samples.labels) * len(ends))
        low, high = find_windows(samples, ends, self._lookback_ms)
        if not len(samples.times):
            return make_empty_vector(len(times))
        newest = np.maximum(high - 1, 0)
        values = samples.values[newest]
        present = (high > low) & ~is_stale(values).reshape(values.shape)
        return drop_absent(Vector(samples.labels, values, present, times=samples.times[newest]))

    def _read(self, node: VectorSelector, ends: Int64s, length_ms: int) -> WindowSamples:
        samples = self._reader.read(node, int(ends[0]) - length_ms, int(ends[-1]))
        if samples.expired:
            self.infos[EXPIRED] = None
        return samples

    def read_windows(self, node: Node, times: Int64s) -> Windows:
        """Return the windows of a range selector or of a subquery."""
        if not isinstance(node, VectorSelector | Subquery) or not node.range_ms:
            raise QueryError("a range is needed here")
        ends = self._shift_times(node, times)
        unnamed = None
        if isinstance(node, VectorSelector):
            samples = self._read(node, ends, node.range_ms).without_stale()
        else:
            step = node.step_ms or DEFAULT_STEP_MS
            first = int(ends.min()) - node.range_ms
            grid = np.arange(first // step * step + step, int(ends.max()) + 1, step, dtype=np.int64)
            if len(grid) > MOST_STEPS:
                raise QueryError(f"a subquery has {len(grid)} steps; the limit is {MOST_STEPS}")
            samples, unnamed = self._sample_subquery(node.inner, grid)
        self._budget.spend(len(samples.labels) * len(ends))
        low, high = find_windows(samples, ends, node.range_ms)
        self._budget.spend(int(high.sum() - low.sum()))
        return Windows(samples, ends, times, node.range_ms, low, high, unnamed)

    def _sample_subquery(self, inner: Node, grid: Int64s) -> tuple[WindowSamples, Bools | None]:
        if not len(grid):
            return WindowSamples([], np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64)), None
        found = self.evaluate(inner, grid)
        if isinstance(found, Scalar):
            found = Vector([()], found.values[None, :], np.ones((1, len(grid)), bool))
        if not isinstance(found, Vector):
            raise QueryError("a subquery needs an instant vector")
        counts = found.present.sum(axis=1)
        starts = np.concatenate(([0], np.cumsum(counts)))
        times = np.broadcast_to(grid, found.present.shape)[found.present]
        return WindowSamples(found.labels, times, found.values[found.present], starts), found.unnamed

    def _aggregation(self, node: Aggregation, times: Int64s) -> Vector:
        parameter = None if node.parameter is None else self.evaluate(node.parameter, times)
        vector = self._vector(node.inner, times)
        if node.operator == "quantile" and isinstance(parameter, Scalar):
            self._check_quantile(parameter.values)
        self._budget.spend(vector.values.size * (1 if node.operator in JOINED else LOOPED))
        return self._resolve_names(aggregate(node, vector, parameter))

    def _check_quantile(self, shares: Float64s) -> None:
        for share in np.unique(shares[~((shares >= 0) & (shares <= 1))]).tolist():
            text = "NaN" if math.isnan(share) else f"{share:g}"
            self.warnings[f"quantile value should be between 0 and 1, got {text}"] = None

    def _call(self, node: FunctionCall, times: Int64s) -> Value:
        name, arguments = node.function, node.arguments
        if name in over_time.OVER_TIME:
            windows = self.read_windows(arguments[0], times)
            if name in over_time.COUNTERS:
                self._check_counter(windows)
            if name in over_time.LOOPED:
                self._budget.spend(LOOPED * windows.low.size)
            return self._resolve_unique_names(over_time.OVER_TIME[name](windows))
        if name in functions.ARITHMETIC:
            vector = self._vector(arguments[0], times)
            return self._resolve_names(vector.transform(functions.ARITHMETIC[name](vector.values)))
        if name in functions.DATES:
            vector = self._vector(arguments[0], times) if arguments else self._evaluate_now(times)
            return self._resolve_names(vector.transform(functions.DATES[name](vector.values)))
        if name not in _FUNCTIONS:
            raise QueryError(f"the function {name} is not supported")
        found = _FUNCTIONS[name](self, arguments, times)
        return self._resolve_names(found) if isinstance(found, Vector) else found

    def _check_counter(self, windows: Windows) -> None:
        for name in dict.fromkeys([get_value(labels, NAME) for labels in windows.samples.labels]):
            if name and not name.endswith(_COUNTER_SUFFIXES):
                text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket"
                self.infos[f'{text}: "{name}"'] = None

    def _evaluate_now(self, times: Int64s) -> Vector:
        return Vector([()], times[None, :] / _SECOND, np.ones((1, len(times)), bool))

    # The functions of the table below.

    def absent(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return 1 at times at which no series has a value."""
        vector = self._vector(arguments[0], times)
        return self._evaluate_absent(arguments[0], vector.present)

    def absent_over_time(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return 1 at times at which no series has a sample in the range."""
        return self._evaluate_absent(arguments[0], self.read_windows(arguments[0], times).count > 0)

    @staticmethod
    def _evaluate_absent(node: Node, present: Bools) -> Vector:
        labels = _equalities(node) if isinstance(node, VectorSelector) else ()
        missing: Bools = np.logical_not(np.atleast_2d(np.any(present, axis=0)))
        return drop_absent(Vector([labels], np.ones(missing.shape), missing))

    def clamp(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the values within two bounds."""
        vector = self._vector(arguments[0], times)
        return drop_absent(functions.clamp(vector, *(self._scalar(one, times) for one in arguments[1:])))

    def clamp_min(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the values, at least a bound."""
        vector = self._vector(arguments[0], times)
        return functions.clamp(vector, self._scalar(arguments[1], times), np.full(len(times), np.inf))

    def clamp_max(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the values, at most a bound."""
        vector = self._vector(arguments[0], times)
        return functions.clamp(vector, np.full(len(times), -np.inf), self._scalar(arguments[1], times))

    def smooth(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return double exponential smoothing of a range."""
        factors = [self._scalar(one, times) for one in arguments[1:]]
        for factor, kind in zip(factors, ("smoothing", "trend"), strict=True):
            bad = factor[~((factor >= 0) & (factor <= 1))]
            if len(bad):
                raise QueryError(f"invalid {kind} factor. Expected: 0 <= {kind[0]}f <= 1, got: {bad[0]:g}")
        windows = self.read_windows(arguments[0], times)
        self._budget.spend(LOOPED * int(windows.count.sum()))
        return over_time.smooth(windows, *factors)

    def histogram_quantile(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return a quantile of histograms."""
        share = self._scalar(arguments[0], times)
        self._check_quantile(share)
        return self._histograms(arguments[1], times, share, compute_quantile, check=True)

    def histogram_quantiles(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return quantiles of histograms, each under its own value of a label."""
        label = self._text(arguments[1])
        parts = []
        for one in arguments[2:]:
            share = self._scalar(one, times)
            self._check_quantile(share)
            part = self._histograms(arguments[0], times, share, compute_quantile, check=True)
            parts.append(part.relabel([set_label(row, label, format_plain(float(share[0]))) for row in part.labels]))
        return Vector(
            [row for part in parts for row in part.labels],
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.present for part in parts]),
            unnamed=np.ones(sum(len(part.labels) for part in parts), bool),
        )

    def histogram_fraction(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the share of observations between two values."""
        ends = np.stack([self._scalar(one, times) for one in arguments[:2]])
        return self._histograms(arguments[2], times, ends, compute_fraction, check=False)

    def _histograms(
        self,
        node: Node,
        times: Int64s,
        parameters: Float64s,
        of: Callable[[Float64s, Float64s, Float64s], Float64s],
        *,
        check: bool,
    ) -> Vector:
        notes = Notes()
        vector = self._vector(node, times)
        self._budget.spend(LOOPED * len(vector.labels) + 10 * vector.values.size)
        found = evaluate_histograms(vector, parameters, of, notes)
        for name in notes.bad_bounds:
            self.warnings[f'bucket label "le" is missing or has a malformed value of "" for metric name "{name}"'] = (
                None
            )
        for name in notes.forced if check else ():
            self.infos[f'{_FORCED} for metric name "{name}"'] = None
        return found

    def label_join(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the values with a label made of others."""
        target, separator, *sources = (self._text(one) for one in arguments[1:])
        return functions.label_join(self._vector(arguments[0], times), target, separator, sources)

    def label_replace(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the values with a label made from another by a regular expression."""
        texts = [self._text(one) for one in arguments[1:]]
        return functions.label_replace(self._vector(arguments[0], times), *texts)

    def predict_linear(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the values that a linear regression over the range predicts."""
        ahead = self._scalar(arguments[1], times)
        return over_time.predict(self.read_windows(arguments[0], times), ahead)

    def quantile_over_time(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return a quantile of a range."""
        share = self._scalar(arguments[0], times)
        self._check_quantile(share)
        windows = self.read_windows(arguments[1], times)
        self._budget.spend(LOOPED * windows.low.size)
        return over_time.compute_quantiles(windows, share)

    def round(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the nearest multiples of a number."""
        vector = self._vector(arguments[0], times)
        multiple = self._scalar(arguments[1], times) if len(arguments) > 1 else np.ones(len(times))
        return vector.transform(functions.round_to(vector.values, multiple))

    def scalar(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the value of the only series; NaN if the number of series is not 1."""
        vector = self._vector(arguments[0], times)
        alone = vector.present.sum(axis=0) == 1
        return Scalar(np.where(alone, np.where(vector.present, vector.values, 0.0).sum(axis=0), np.nan))

    def vector(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return a number as a series without labels."""
        return Vector([()], self._scalar(arguments[0], times)[None, :], np.ones((1, len(times)), bool))

    def timestamp(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the times of the samples; for computed values, the time of the evaluation."""
        vector = self._vector(arguments[0], times)
        sampled = isinstance(arguments[0], VectorSelector) and vector.times is not None
        found = vector.times if sampled and vector.times is not None else np.broadcast_to(times, vector.values.shape)
        return vector.transform(found / _SECOND)

    def time(self, _arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the time of the evaluation in seconds."""
        return Scalar(times / _SECOND)

    def pi(self, _arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the number pi."""
        return Scalar(np.full(len(times), np.pi))

    def step(self, _arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the step of the query in seconds."""
        return Scalar(np.full(len(times), self._step_ms / _SECOND))

    def range(self, _arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the length of the query's range in seconds."""
        return Scalar(np.full(len(times), (self._end_ms - self._start_ms) / _SECOND))

    def start(self, _arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the start of the query's range."""
        return Scalar(np.full(len(times), self._start_ms / _SECOND))

    def end(self, _arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the end of the query's range."""
        return Scalar(np.full(len(times), self._end_ms / _SECOND))

    def max_of(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the larger of two numbers."""
        return Scalar(np.maximum(self._scalar(arguments[0], times), self._scalar(arguments[1], times)))

    def min_of(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the smaller of two numbers."""
        return Scalar(np.minimum(self._scalar(arguments[0], times), self._scalar(arguments[1], times)))

    def sort(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the series by their values."""
        return functions.sort_by_value(self._vector(arguments[0], times), descending=False)

    def sort_desc(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the series by their values, the largest first."""
        return functions.sort_by_value(self._vector(arguments[0], times), descending=True)

    def sort_by_label(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the series by their labels."""
        names = [self._text(one) for one in arguments[1:]]
        return functions.sort_by_label(self._vector(arguments[0], times), names, descending=False)

    def sort_by_label_desc(self, arguments: Sequence[Node], times: Int64s) -> Value:
        """Return the series by their labels, the last first."""
        names = [self._text(one) for one in arguments[1:]]
        return functions.sort_by_label(self._vector(arguments[0], times), names, descending=True)


def _equalities(node: VectorSelector) -> Labels:
    """Return the labels that every series of a selector has: labels whose only condition is an equality."""
    if len(node.alternatives) != 1:
        return ()
    conditions: dict[str, list[str | None]] = {}
    for one in node.alternatives[0]:
        conditions.setdefault(one.label, []).append(one.value if one.match is VectorMatch.EQUAL else None)
    return make_labels(
        (name, values[0] or "") for name, values in conditions.items() if len(values) == 1 and name != NAME
    )


_Function = Callable[[Evaluation, Sequence[Node], Int64s], Value]
_FUNCTIONS: dict[str, _Function] = {
    "absent": Evaluation.absent,
    "absent_over_time": Evaluation.absent_over_time,
    "clamp": Evaluation.clamp,
    "clamp_max": Evaluation.clamp_max,
    "clamp_min": Evaluation.clamp_min,
    "double_exponential_smoothing": Evaluation.smooth,
    "end": Evaluation.end,
    "histogram_fraction": Evaluation.histogram_fraction,
    "histogram_quantile": Evaluation.histogram_quantile,
    "histogram_quantiles": Evaluation.histogram_quantiles,
    "label_join": Evaluation.label_join,
    "label_replace": Evaluation.label_replace,
    "max_of": Evaluation.max_of,
    "min_of": Evaluation.min_of,
    "pi": Evaluation.pi,
    "predict_linear": Evaluation.predict_linear,
    "quantile_over_time": Evaluation.quantile_over_time,
    "range": Evaluation.range,
    "round": Evaluation.round,
    "scalar": Evaluation.scalar,
    "sort": Evaluation.sort,
    "sort_by_label": Evaluation.sort_by_label,
    "sort_by_label_desc": Evaluation.sort_by_label_desc,
    "sort_desc": Evaluation.sort_desc,
    "start": Evaluation.start,
    "step": Evaluation.step,
    "time": Evaluation.time,
    "timestamp": Evaluation.timestamp,
    "vector": Evaluation.vector,
}
