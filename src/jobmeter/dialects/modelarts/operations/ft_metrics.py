"""ShowFtMetrics: metrics that the program reported (``app.*``), such as the loss.

https://support.huaweicloud.com/api-modelarts/ShowFtMetrics.html. The page leaves the form of ``loss``, ``eval_loss``
and ``training_info`` open; SPEC.md describes the chosen one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.modelarts.answers import answer, answer_no_data
from jobmeter.dialects.modelarts.requests import JOB_PATH, ModelArtsJobRequest, operation
from jobmeter.model.series import compute_job_key
from jobmeter.model.time import format_iso
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.request import By, JobQuestion, Line, MetricQuery, Statistic
from jobmeter.query.series import SeriesQuestion

PREFIX = "app."
MAX_POINTS = 2_000
MAX_METRICS = 100
STEP = "step"
LOSS, EVAL_LOSS = ("loss", "train_loss"), ("eval_loss", "val_loss", "validation_loss")
PROGRESS = ("progress", "train_process")
_VALIDATION, _TEST = ("eval", "val"), ("test",)


@operation(f"GET {JOB_PATH}/ft-metrics", "metrics:read", by_resource=True)
class ShowFtMetrics(ModelArtsJobRequest, frozen=True, kw_only=True):
    """`{loss, eval_loss, training_info, train_process, data}` from the values that the program reported as `app.*`.

    `data.metrics` has every metric as a curve `[{timestamp, step, value}]` (milliseconds; `step` if `app.step` was
    reported at that time). A curve has at most 2,000 points, each the last report of its step, as the mean over
    replicas. `loss` and `eval_loss` repeat the curves of `app.loss` and `app.eval_loss`, `training_info` has the last
    value of each other metric, `train_process` the last of `app.progress`. 204 without any reports.
    """

    def _steps(self) -> Steps:
        ref, now_ms = self.ref, self.context.now_ms
        view = yield from ask(JobQuestion(ref))
        found = yield from ask(SeriesQuestion(jobs=(compute_job_key(view.job.project, view.job.id),)))
        names = sorted({series.metric for series in found.series if series.metric.startswith(PREFIX)})
        if not names:
            return answer_no_data(self.context)
        span = compute_life(view.job, now_ms)
        result = yield from ask(
            MetricQuery(
                subject=ref,
                metrics=tuple(names[:MAX_METRICS]),
                range=span,
                step_ms=choose_step(span, MAX_POINTS),
                by=By.JOB,
                statistic=Statistic.LAST,
            )
        )
        lines = {line.metric.removeprefix(PREFIX): line for line in result.lines}
        return answer(_body(lines, now_ms), self.context) if lines else answer_no_data(self.context)


def _body(lines: Mapping[str, Line], now_ms: int) -> dict[str, Any]:
    steps = _steps(lines.get(STEP))
    curves = {name: _points(line, steps) for name, line in lines.items() if name != STEP}
    last = {name: float(line.value[-1]) for name, line in lines.items()}
    body: dict[str, Any] = {}
    for key, candidates in (("loss", LOSS), ("eval_loss", EVAL_LOSS)):
        named = _find_first(curves, candidates)
        if named:
            body[key] = {"x_axis": STEP if steps else "timestamp", "data": curves[named]}
    curve_names = {*LOSS, *EVAL_LOSS, *PROGRESS}
    body["training_info"] = {name: value for name, value in last.items() if name not in curve_names}
    progress = _find_first(last, PROGRESS)
    if progress:
        body["train_process"] = last[progress]
    metrics = [_metric(name, points, bool(steps)) for name, points in curves.items()]
    body["data"] = {"format_version": "1.0", "timestamp": format_iso(now_ms // 1000 * 1000), "metrics": metrics}
    return body


def _find_first(found: Mapping[str, Any], candidates: Sequence[str]) -> str:
    return next((name for name in candidates if name in found), "")


def _steps(line: Line | None) -> dict[int, float]:
    """Return the reported step of each bucket."""
    return {} if line is None else dict(zip(line.time.tolist(), line.value.tolist(), strict=True))


def _points(line: Line, steps: Mapping[int, float]) -> list[dict[str, Any]]:
    return [
        {"timestamp": time, **({STEP: _to_integer_if_whole(steps[time])} if time in steps else {}), "value": value}
        for time, value in zip(line.time.tolist(), line.value.tolist(), strict=True)
    ]


def _to_integer_if_whole(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def _metric(name: str, points: list[dict[str, Any]], by_step: bool) -> dict[str, Any]:
    return {
        "name_cn": name,
        "name_en": name,
        "des_en": "Reported by the program.",
        "des_cn": "程序上报",
        "type": "line",
        "group": _group(name),
        "group_by": [],
        "x_axis": STEP if by_step else "timestamp",
        "tags": [],
        "unit": "",
        "data": points,
    }


def _group(name: str) -> str:
    if name.startswith(_VALIDATION):
        return "validation"
    return "test" if name.startswith(_TEST) else "training"
