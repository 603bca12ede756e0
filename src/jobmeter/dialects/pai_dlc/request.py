"""PAI-DLC's requests as questions."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from jobmeter.access.call import Call
from jobmeter.access.share import DEFAULT_LIFE_SECONDS, MAX_LIFE_SECONDS
from jobmeter.dialects.base import Context, MissingFieldError, ShareQuestion
from jobmeter.dialects.pai_dlc.names import METRICS
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import HOUR, MAX_TIME_MS, MINUTE, SECOND, TimeRange
from jobmeter.query.request import By, JobQuestion, JobRef, MetricQuery

DEFAULT_STEP_MS = 5 * MINUTE
_STEP = re.compile(r"([0-9]{1,9})([hms]?)")
_STEP_UNITS = {"h": HOUR, "m": MINUTE, "s": SECOND, "": MINUTE}


def job_metrics(call: Call, context: Context) -> Sequence[MetricQuery | JobQuestion]:
    """GetJobMetrics: one metric by replica, and the job, for the pod ids of its replicas."""
    job = JobRef(_required(context.path["JobId"], "JobId"))
    metric = METRICS.get(metric_type := _required(call.parameter("MetricType"), "MetricType"))
    if metric is None:
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {', '.join(METRICS)}", "MetricType")
    query = MetricQuery(
        subject=job,
        metrics=(metric.name,),
        range=_range(call, context.now_ms),
        step_ms=_step(call.parameter("TimeStep") or ""),
        by=By.REPLICA,
    )
    return query, JobQuestion(job)


def token(call: Call, context: Context) -> Sequence[ShareQuestion]:  # noqa: ARG001 - the shape of every parse function
    """GetToken: a share token for one job."""
    kind = _required(call.parameter("TargetType"), "TargetType")
    if kind != "job":
        raise InvalidRequestError(f"TargetType {kind!r} is not supported; only job is", "TargetType")
    seconds = call.parameter("ExpireTime") or str(DEFAULT_LIFE_SECONDS)
    if not re.fullmatch("[0-9]{1,9}", seconds) or not 1 <= int(seconds) <= MAX_LIFE_SECONDS:
        raise InvalidRequestError(
            f"ExpireTime {seconds!r} is not a number of seconds from 1 to {MAX_LIFE_SECONDS}", "ExpireTime"
        )
    return (ShareQuestion(JobRef(_required(call.parameter("TargetId"), "TargetId")), int(seconds)),)


def _required(value: str | None, field: str) -> str:
    if not value:
        raise MissingFieldError(f"{field} is mandatory for this action", field)
    return value


def _range(call: Call, now_ms: int) -> TimeRange:
    # Documented defaults: StartTime is an hour ago, EndTime is now. An EndTime before that hour leaves only the hour
    # before it as a sensible start.
    end = _time(call.parameter("EndTime"), "EndTime", now_ms)
    start = _time(
        call.parameter("StartTime"), "StartTime", min(now_ms, end) - HOUR if end <= now_ms - HOUR else now_ms - HOUR
    )
    if end < start:
        raise InvalidRequestError("EndTime must not be earlier than StartTime", "EndTime")
    return TimeRange(start, end)


def _time(text: str | None, field: str, default: int) -> int:
    if not text:
        return max(0, default)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _wrong_time(text, field) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if text.isdigit() or not 0 <= time_ms <= MAX_TIME_MS:
        raise _wrong_time(text, field)
    return time_ms


def _wrong_time(text: str, field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{field} {text!r} is not a UTC time from 1970 to 2100 such as 2020-11-08T16:00:00Z", field
    )


def _step(text: str) -> int:
    if not text:
        return DEFAULT_STEP_MS
    found = _STEP.fullmatch(text)
    step = int(found[1]) * _STEP_UNITS[found[2]] if found else 0
    if not 0 < step <= MAX_TIME_MS:
        raise InvalidRequestError(
            f"TimeStep {text!r} is not a step such as 30s, 5m or 1h (a bare number: minutes)", "TimeStep"
        )
    return step
