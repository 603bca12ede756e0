"""MLflow's metrics in the server's store: write values, read histories and newest values."""

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from jobmeter.dialects.base import WriteSamples, ask
from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import SampleBatch, SampleColumns
from jobmeter.model.question import Question
from jobmeter.model.series import Series, compute_job_key
from jobmeter.model.time import MAX_TIME_MS, TimeRange
from jobmeter.query.series import LastQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.wire.mlflow.names import KEY_LABEL, RUN_LABEL, STEP, VALUE_LABEL
from jobmeter.wire.mlflow.runs import Run
from jobmeter.wire.mlflow.values import (
    SPECIAL,
    LoggedPoint,
    MetricValue,
    check_points,
    make_rows,
    make_series,
    step_series,
)


def write(run: Run, values: Sequence[MetricValue]) -> Generator[Question[Any], Any, None]:
    """Store values. Raises InvalidRequestError if the server rejects values because of their time."""
    points = check_points(values)
    if not points:
        return
    receipt = yield from ask(WriteSamples(batch=_batch(make_rows(run, points))))
    if receipt.rejected:
        reasons = ", ".join(f"{count} samples {reason}" for reason, count in sorted(receipt.rejected.items()))
        raise InvalidRequestError(f"Some values were not stored because of their timestamp: {reasons}.", "timestamp")


def read_history(run: Run, key: str) -> Generator[Question[Any], Any, list[LoggedPoint]]:
    """Return every stored value of a metric, in order of time."""
    series = (make_series(run, key), *(step_series(run, key, special) for special in ("", *SPECIAL)))
    read = yield from ask(SamplesQuestion(series=series, range=TimeRange(0, MAX_TIME_MS)))
    return _points(key, read.columns, (0, 1), {2 + at: text for at, text in enumerate(SPECIAL)})


def read_newest(
    runs: Sequence[Run], keys: frozenset[str] | None = None
) -> Generator[Question[Any], Any, dict[str, Any]]:
    """Return the newest value of each metric by name, by run id; with ``keys``, only of these metrics."""
    by_id = {(run.project, run.job, run.id): run for run in runs}
    jobs = tuple({compute_job_key(project, job): None for project, job, _ in by_id})
    found = yield from ask(SeriesQuestion(metrics=frozenset({STEP}), jobs=jobs)) if jobs else _do_nothing()
    sought: list[tuple[Run, str, str, int]] = []
    series: list[Series] = []
    for one in found.series if found else ():
        labels = dict(one.labels)
        run, key = by_id.get((one.project, one.job, labels.get(RUN_LABEL, ""))), labels.get(KEY_LABEL, "")
        if run is None or not key or (keys is not None and key not in keys):
            continue
        special = labels.get(VALUE_LABEL, "")
        sought.append((run, key, special, len(series)))
        series += [one] if special else [one, make_series(run, key)]
    read = yield from ask(LastQuestion(series=tuple(series))) if series else _do_nothing()
    last = _select_last(read.columns) if read else {}
    values: dict[str, dict[str, LoggedPoint]] = defaultdict(dict)
    for run, key, special, at in sought:
        time, step = last.get(at, (-1, 0.0))
        time_of_value, value = last.get(at + 1, (-1, 0.0)) if not special else (time, special)
        before = values[run.id].get(key)
        if time >= 0 and time == time_of_value and (before is None or time > before.time):
            values[run.id][key] = LoggedPoint(key, time, round(step), value)
    return values


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


def _select_last(columns: SampleColumns) -> dict[int, tuple[int, float]]:
    return {
        at: (time, value)
        for at, time, value in zip(columns.index.tolist(), columns.time.tolist(), columns.value.tolist(), strict=True)
    }


def _do_nothing() -> Generator[Question[Any], Any, None]:
    yield from ()
