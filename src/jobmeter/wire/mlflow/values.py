"""Values of metrics as samples of the run's job. The step of each value is a sample of a second series.

The store has finite numbers, one for each millisecond of a series. So a value that is not finite is only a step, with
the value in ``VALUE_LABEL``. Values of one request at the same time get consecutive times.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.series import Series
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.wire.mlflow.names import APP, KEY_LABEL, RUN_LABEL, STEP, VALUE_LABEL, check_key, convert_key
from jobmeter.wire.mlflow.runs import Run

SPECIAL = ("NaN", "Infinity", "-Infinity")
"""Values that are not finite, as the JSON mapping of Protocol Buffers writes them."""
_PROGRAM_STEP = f"{APP}step"
_SYSTEM = "system/"
"""Prefix of the client's system metrics, in which the step numbers the sample."""
_MOST_STEP = 2**53


class KeyValue(msgspec.Struct, frozen=True):
    """Parameter or tag."""

    key: str
    value: str = ""


class MetricValue(msgspec.Struct, frozen=True):
    """Value of a metric. ``timestamp`` in epoch milliseconds; ``value`` is text if JSON has no such number."""

    key: str
    value: float | str
    timestamp: int
    step: int = 0


class LoggedPoint(NamedTuple):
    """Logged value: a number, or a text of ``SPECIAL``."""

    key: str
    time: int
    step: int
    value: float | str

    @property
    def body(self) -> dict[str, Any]:
        """Body of MLflow's ``Metric``."""
        return {"key": self.key, "value": self.value, "timestamp": self.time, "step": self.step}


def check_points(values: Sequence[MetricValue]) -> list[LoggedPoint]:
    """Return checked values, sorted, each at its own time; see ``spread``. Raises InvalidRequestError."""
    return spread([_point(value) for value in values])


def make_rows(run: Run, points: Iterable[LoggedPoint]) -> dict[Series, dict[int, float]]:
    """Return the samples of values: numbers by time for each series."""
    rows: dict[Series, dict[int, float]] = defaultdict(dict)
    for point in points:
        special = point.value if isinstance(point.value, str) else ""
        rows[step_series(run, point.key, special)][point.time] = point.step
        if not isinstance(point.value, str):
            rows[make_series(run, point.key)][point.time] = point.value
        if point.step and not point.key.startswith(_SYSTEM):
            rows[_series(run, _PROGRAM_STEP)][point.time] = point.step
    return rows


def spread(points: Iterable[LoggedPoint]) -> list[LoggedPoint]:
    """Give each value of a metric its own millisecond, in order of time and step.

    Repeated values count once, so a repeated request has no effect.
    """
    found: list[LoggedPoint] = []
    for point in sorted(set(points), key=lambda one: (one.key, one.time, one.step, str(one.value))):
        last = found[-1] if found and found[-1].key == point.key else None
        found.append(point if last is None or point.time > last.time else point._replace(time=last.time + 1))
    return found


def make_series(run: Run, key: str) -> Series:
    """Return the series of a metric's finite values."""
    metric, label = convert_key(key)
    return _series(run, metric, *(((KEY_LABEL, label),) if label else ()), (RUN_LABEL, run.id))


def step_series(run: Run, key: str, special: str = "") -> Series:
    """Return the series of a metric's steps. Each text of ``SPECIAL`` has its own series of steps."""
    values = ((VALUE_LABEL, special),) if special else ()
    return _series(run, STEP, (KEY_LABEL, key), (RUN_LABEL, run.id), *values)


def _series(run: Run, metric: str, *labels: tuple[str, str]) -> Series:
    return Series(metric, run.project, "", run.node, "", run.job, run.replica, run.attempt, labels)


def _point(given: MetricValue) -> LoggedPoint:
    key = check_key(given.key, "key")
    if not 0 <= given.timestamp < MAX_TIME_MS - 1_000_000:
        raise InvalidRequestError(f"timestamp {given.timestamp} is not a time in milliseconds", "timestamp")
    if abs(given.step) > _MOST_STEP:
        raise InvalidRequestError(f"step {given.step} is beyond 2^53", "step")
    try:
        value = float(given.value)
    except ValueError as error:
        raise InvalidRequestError(f"value {str(given.value)[:64]!r} is not a number", "value") from error
    if math.isfinite(value):
        return LoggedPoint(key, given.timestamp, given.step, value)
    return LoggedPoint(
        key, given.timestamp, given.step, SPECIAL[0] if math.isnan(value) else SPECIAL[1 if value > 0 else 2]
    )
