"""Values of metrics: samples of the run's job, each with its step in a series beside it.

The store has finite numbers, one for each millisecond of a series. So a value that is not finite is only a step, with
the value in ``VALUE_LABEL``; and values of one request at the same time get consecutive times.
"""

import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jobmeter.dialects.base import WriteSamples, ask
from jobmeter.dialects.mlflow.names import (
    APP,
    KEY_LABEL,
    RUN_LABEL,
    STEP,
    VALUE_LABEL,
    check_key,
    metric_of,
)
from jobmeter.dialects.mlflow.requests import MetricValue
from jobmeter.dialects.mlflow.runs import Run
from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import SampleBatch, SampleColumns
from jobmeter.model.question import Question
from jobmeter.model.series import Series, job_key
from jobmeter.model.time import MAX_TIME_MS, TimeRange
from jobmeter.query.series import LastQuestion, SamplesQuestion, SeriesQuestion

SPECIAL = ("NaN", "Infinity", "-Infinity")
"""Values that are not finite, as JSON of protocol buffers writes them."""
_PROGRAM_STEP = f"{APP}step"
_SYSTEM = "system/"
"""Prefix of the client's own system metrics, whose steps count their samples."""
_MOST_STEP = 2**53


class LoggedPoint(NamedTuple):
    """Logged value: a number, or a text of ``SPECIAL``."""

    key: str
    time: int
    step: int
    value: float | str

    @property
    def body(self) -> dict[str, Any]:
        """MLflow's ``Metric``."""
        return {"key": self.key, "value": self.value, "timestamp": self.time, "step": self.step}


def write(run: Run, values: Sequence[MetricValue]) -> Generator[Question[Any], Any, None]:
    """Store values. Raises InvalidRequestError if the server rejects some because of their time."""
    points = spread([_point(value) for value in values])
    if not points:
        return
    rows: dict[Series, dict[int, float]] = defaultdict(dict)
    for point in points:
        special = point.value if isinstance(point.value, str) else ""
        rows[step_series(run, point.key, special)][point.time] = point.step
        if not isinstance(point.value, str):
            rows[value_series(run, point.key)][point.time] = point.value
        if point.step and not point.key.startswith(_SYSTEM):
            rows[_series(run, _PROGRAM_STEP)][point.time] = point.step
    receipt = yield from ask(WriteSamples(batch=_batch(rows)))
    if receipt.rejected:
        reasons = ", ".join(f"{count} samples {reason}" for reason, count in sorted(receipt.rejected.items()))
        raise InvalidRequestError(f"Some values were not stored because of their timestamp: {reasons}.", "timestamp")


def spread(points: Iterable[LoggedPoint]) -> list[LoggedPoint]:
    """Move values of one metric at the same time apart by a millisecond each, in order of time and step.

    Repeated values count once, so that a request sent again changes nothing.
    """
    found: list[LoggedPoint] = []
    for point in sorted(set(points), key=lambda one: (one.key, one.time, one.step, str(one.value))):
        last = found[-1] if found and found[-1].key == point.key else None
        found.append(point if last is None or point.time > last.time else point._replace(time=last.time + 1))
    return found


def history(run: Run, key: str) -> Generator[Question[Any], Any, list[LoggedPoint]]:
    """Return every stored value of a metric, in order of time."""
    series = (value_series(run, key), *(step_series(run, key, special) for special in ("", *SPECIAL)))
    read = yield from ask(SamplesQuestion(series=series, range=TimeRange(0, MAX_TIME_MS)))
    return _points(key, read.columns, (0, 1), {2 + at: text for at, text in enumerate(SPECIAL)})


def newest(runs: Sequence[Run], keys: frozenset[str] | None = None) -> Generator[Question[Any], Any, dict[str, Any]]:
    """Return by run id the newest value of each metric by name; with ``keys``, only these metrics."""
    by_id = {(run.project, run.job, run.id): run for run in runs}
    jobs = tuple({job_key(project, job): None for project, job, _ in by_id})
    found = yield from ask(SeriesQuestion(metrics=frozenset({STEP}), jobs=jobs)) if jobs else _nothing()
    sought: list[tuple[Run, str, str, int]] = []
    series: list[Series] = []
    for one in found.series if found else ():
        labels = dict(one.labels)
        run, key = by_id.get((one.project, one.job, labels.get(RUN_LABEL, ""))), labels.get(KEY_LABEL, "")
        if run is None or not key or (keys is not None and key not in keys):
            continue
        special = labels.get(VALUE_LABEL, "")
        sought.append((run, key, special, len(series)))
        series += [one] if special else [one, value_series(run, key)]
    read = yield from ask(LastQuestion(series=tuple(series))) if series else _nothing()
    last = _last(read.columns) if read else {}
    values: dict[str, dict[str, LoggedPoint]] = defaultdict(dict)
    for run, key, special, at in sought:
        time, step = last.get(at, (-1, 0.0))
        time_of_value, value = last.get(at + 1, (-1, 0.0)) if not special else (time, special)
        before = values[run.id].get(key)
        if time >= 0 and time == time_of_value and (before is None or time > before.time):
            values[run.id][key] = LoggedPoint(key, time, round(step), value)
    return values


def value_series(run: Run, key: str) -> Series:
    """Return the series of a metric's finite values."""
    metric, label = metric_of(key)
    return _series(run, metric, *(((KEY_LABEL, label),) if label else ()), (RUN_LABEL, run.id))


def step_series(run: Run, key: str, special: str = "") -> Series:
    """Return the series of a metric's steps, for values that are not finite one for each of these values."""
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


def _batch(rows: Mapping[Series, Mapping[int, float]]) -> SampleBatch:
    counts = [len(values) for values in rows.values()]
    return SampleBatch(
        list(rows),
        np.repeat(np.arange(len(rows), dtype=np.uint32), counts),
        np.array([time for values in rows.values() for time in values], np.int64),
        np.array([value for values in rows.values() for value in values.values()], np.float64),
    )


def _points(key: str, columns: SampleColumns, own: tuple[int, int], specials: Mapping[int, str]) -> list[LoggedPoint]:
    rows = list(zip(columns.index.tolist(), columns.time.tolist(), columns.value.tolist(), strict=True))
    values = {time: value for at, time, value in rows if at == own[0]}
    found: list[LoggedPoint] = []
    for at, time, step in rows:
        if at == own[1] and time in values:
            found.append(LoggedPoint(key, time, round(step), values[time]))
        elif at in specials:
            found.append(LoggedPoint(key, time, round(step), specials[at]))
    return sorted(found, key=lambda point: (point.time, point.step))


def _last(columns: SampleColumns) -> dict[int, tuple[int, float]]:
    return {
        at: (time, value)
        for at, time, value in zip(columns.index.tolist(), columns.time.tolist(), columns.value.tolist(), strict=True)
    }


def _nothing() -> Generator[Question[Any], Any, None]:
    yield from ()
