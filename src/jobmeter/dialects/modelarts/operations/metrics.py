"""ShowTrainingJobMetrics: the mean of each minute of a task's life.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobMetrics.html
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.modelarts.answers import answer, answer_no_data
from jobmeter.dialects.modelarts.errors import INVALID_PARAMETER, RefusedError
from jobmeter.dialects.modelarts.names import METRICS, percent
from jobmeter.dialects.modelarts.requests import JOB_PATH, ModelArtsJobRequest, TaskRequest, operation
from jobmeter.errors import LimitExceededError
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Question
from jobmeter.model.series import job_key
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, TimeRange, floor_to, iso
from jobmeter.query.defaults import default_step, job_end, job_start, life
from jobmeter.query.request import By, JobQuestion, JobRef, Line, MetricQuery, MetricResult, Statistic
from jobmeter.query.series import SeriesQuestion

NOT_MEASURED = -1
LONGEST_MS = 90 * DAY
"""Longest answered part of a job's life, at its end: minutes are stored for that time, the only step of the format."""
_TOGETHER_MS = 30 * DAY
"""Longest range of one query: a server allows 50,000 buckets a line."""


@operation(f"GET {JOB_PATH}/metrics/{{task_id}}", "metrics:read", by_resource=True)
class ShowTrainingJobMetrics(TaskRequest, frozen=True, kw_only=True):
    """`{metrics: [{metric, value}]}` with cpuUsage, memUsage, gpuUtil, gpuMemUsage, npuUtil and npuMemUsage.

    They are in this order and equally long: one mean a minute, in percent (0 to 100), from the minute of the job's
    start to the minute of its end or to now (the last 90 days of a longer job); -1 for a minute without samples. A
    metric of devices joins all devices of the task. 204 without any samples.
    """

    def _steps(self) -> Steps:
        ref = self.ref
        view = yield from ask(JobQuestion(ref))
        replicas, span = self.replicas(view), _life(view.job, self.context.now_ms)
        if span is None:
            return answer_no_data(self.context)
        lines = yield from _read_lines(ref, replicas, span)
        if not lines:
            return answer_no_data(self.context)
        minutes = -(-span.length_ms // MINUTE)
        last = span.start_ms + (minutes - 1) * MINUTE
        if _may_lack_last_minute(view.job) and max(line.time[-1] for line in lines) < last:
            minutes -= 1
        values: dict[str, list[float | int]] = {name: [NOT_MEASURED] * minutes for name in METRICS}
        names = {metric.name: name for name, metric in METRICS.items()}
        for line in lines:
            series = values[names[line.metric]]
            for time, value in zip(line.time.tolist(), line.value.tolist(), strict=True):
                series[(time - span.start_ms) // MINUTE] = percent(value)
        body = {"metrics": [{"metric": name, "value": series} for name, series in values.items()]}
        return answer(body, self.context)


def _read_lines(ref: JobRef, replicas: frozenset[str], span: TimeRange) -> Generator[Question[Any], Any, list[Line]]:
    """Return the lines of the span; a metric has several lines if the span is too long for one query."""
    lines: list[Line] = []
    try:
        for start in range(span.start_ms, span.end_ms, _TOGETHER_MS):
            question = MetricQuery(
                subject=ref,
                metrics=tuple(metric.name for metric in METRICS.values()),
                range=TimeRange(start, min(start + _TOGETHER_MS, span.end_ms)),
                step_ms=MINUTE,
                by=By.REPLICA if replicas else By.JOB,
                replicas=replicas,
            )
            result: MetricResult = yield from ask(question)
            lines += result.lines
    except LimitExceededError as error:
        # The rest of the message may advise a longer step, which this API does not have.
        limit = error.message.partition(":")[0]
        message = f"the job is too long for a value each minute ({limit})"
        raise RefusedError(INVALID_PARAMETER, message, "training_job_id") from error
    return lines


def _life(job: Job, now_ms: int) -> TimeRange | None:
    """Return the range from the minute of the job's start to the end of its last minute, or until now.

    At most its last ``LONGEST_MS``. None before it started.
    """
    start = job_start(job)
    if start is None or (job.state is JobState.QUEUED and job.start is None and job.first_sample is None):
        return None
    end = job_end(job)
    until = now_ms + 1 if end is None else floor_to(end, MINUTE) + MINUTE
    first = max(floor_to(start, MINUTE), floor_to(until, MINUTE) - LONGEST_MS)
    return TimeRange(first, min(max(until, first), MAX_TIME_MS)) if first < until else None


def _may_lack_last_minute(job: Job) -> bool:
    """Return True if the last minute may have no samples: the current one, or one that the job's end only touches."""
    end = job_end(job)
    return end is None or end % MINUTE == 0


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

    `data.metrics` has every metric as a curve `[{timestamp, step, value}]` (milliseconds; `step` where `app.step` was
    reported at that time). A curve has at most 2,000 points, each the last report of its step, as the mean over
    replicas. `loss` and `eval_loss` repeat the curves of `app.loss` and `app.eval_loss`, `training_info` has the last
    value of each other metric, `train_process` the last of `app.progress`. 204 without any reports.
    """

    def _steps(self) -> Steps:
        ref, now_ms = self.ref, self.context.now_ms
        view = yield from ask(JobQuestion(ref))
        found = yield from ask(SeriesQuestion(jobs=(job_key(view.job.project, view.job.id),)))
        names = sorted({series.metric for series in found.series if series.metric.startswith(PREFIX)})
        if not names:
            return answer_no_data(self.context)
        span = life(view.job, now_ms)
        result = yield from ask(
            MetricQuery(
                subject=ref,
                metrics=tuple(names[:MAX_METRICS]),
                range=span,
                step_ms=default_step(span, MAX_POINTS),
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
    body["data"] = {"format_version": "1.0", "timestamp": iso(now_ms // 1000 * 1000), "metrics": metrics}
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
