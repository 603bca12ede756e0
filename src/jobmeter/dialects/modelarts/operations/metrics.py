"""ShowTrainingJobMetrics: the mean of each minute of a task's life.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ShowTrainingJobMetrics.html
"""

from collections.abc import Generator
from typing import Any

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.modelarts.answers import answer, answer_no_data
from jobmeter.dialects.modelarts.errors import INVALID_PARAMETER, RefusedError
from jobmeter.dialects.modelarts.names import METRICS, convert_percent
from jobmeter.dialects.modelarts.requests import JOB_PATH, TaskRequest, operation
from jobmeter.errors import LimitExceededError
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Question
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, TimeRange, floor_to
from jobmeter.query.defaults import find_end, find_start
from jobmeter.query.request import By, JobQuestion, JobRef, Line, MetricQuery, MetricResult

NOT_MEASURED = -1
LONGEST_MS = 90 * DAY
"""Longest answered part of a job's life, before its end: minutes, the only step of the format, are kept that long."""
_TOGETHER_MS = 30 * DAY
"""Longest range of one query: a server allows 50,000 steps a line."""


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
        replicas, span = self.select_replicas(view), _life(view.job, self.context.now_ms)
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
                series[(time - span.start_ms) // MINUTE] = convert_percent(value)
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

    Only its last ``LONGEST_MS``. Returns None before the job's start.
    """
    start = find_start(job)
    if start is None or (job.state is JobState.QUEUED and job.start is None and job.first_sample is None):
        return None
    end = find_end(job)
    until = now_ms + 1 if end is None else floor_to(end, MINUTE) + MINUTE
    first = max(floor_to(start, MINUTE), floor_to(until, MINUTE) - LONGEST_MS)
    return TimeRange(first, min(max(until, first), MAX_TIME_MS)) if first < until else None


def _may_lack_last_minute(job: Job) -> bool:
    """Return True if samples of the last minute may be missing: it is not over, or the job ended as it began."""
    end = find_end(job)
    return end is None or end % MINUTE == 0
