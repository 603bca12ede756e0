"""Defaults of query parameters."""

from jobmeter.model.catalog import Display, list_shown
from jobmeter.model.job import Job
from jobmeter.model.steps import STEPS
from jobmeter.model.time import HOUR, MAX_TIME_MS, MINUTE, TimeRange, ceil_to, floor_to

DEFAULT_BUCKETS = 240

CORE_METRICS = list_shown(Display.CORE)
"""Default metrics of a job."""

SUMMARY_METRICS = list_shown(Display.CORE | Display.SUMMARY)
"""Metrics of a job's summary."""


LATE_MS = 30_000
"""Time in milliseconds after a job's end in which a sample still belongs to the job."""


_UNREPORTED_MS = MINUTE
"""Longest delay in ms until a stored sample's time is in ``last_sample``: see ``jobmeter.ingest.observe``."""


def choose_step(span: TimeRange, buckets: int = DEFAULT_BUCKETS) -> int:
    """Return the smallest of ``STEPS``, in ms, that cuts the range into at most ``buckets``; at most a day."""
    fits = (step for step in STEPS if (ceil_to(span.end_ms, step) - floor_to(span.start_ms, step)) // step <= buckets)
    return next(fits, STEPS[-1])


def compute_life(job: Job, now_ms: int) -> TimeRange:
    """Return the range from a job's start to just after its end (or now). Its samples replace unrecorded times."""
    start, end = find_start(job), find_end(job)
    # The last sample comes after the end, which a scheduler reports in whole seconds.
    if end is not None and now_ms < end + LATE_MS + _UNREPORTED_MS:
        end = max(end, min(now_ms, end + LATE_MS))
    elif end is not None and job.last_sample is not None and end < job.last_sample <= end + LATE_MS:
        end = job.last_sample
    end = min((now_ms if end is None else end) + 1, MAX_TIME_MS)
    return TimeRange(min(end if start is None else start, end), end)


def find_creation(job: Job) -> int | None:
    """Return the creation time of a job in epoch ms, by which listings sort; None if unknown.

    Without a recorded creation: its start, else its first sample.
    """
    return next((time for time in (job.created, job.start, job.first_sample) if time is not None), None)


def find_start(job: Job) -> int | None:
    """Return the start of a job in epoch milliseconds: recorded, else its first sample, else its creation."""
    return next((time for time in (job.start, job.first_sample, job.created) if time is not None), None)


def find_end(job: Job) -> int | None:
    """Return the end of a finished job: recorded, else its last sample. None while it runs or if unknown."""
    if not job.state.finished:
        return None
    return job.end if job.end is not None else job.last_sample


def choose_range(
    job: Job,
    now_ms: int,
    *,
    start: int | None = None,
    end: int | None = None,
    since: int | None = None,
    step_ms: int | None = None,
) -> TimeRange:
    """Return the range of a query that gives any of ``start``, ``end`` (epoch ms) and ``since`` (ms before the end).

    The default for a finished job is its whole life, its end rounded up to the step so that the last bucket is
    complete; for a running job the last hour. Raises InvalidRequestError if the range would end before it starts.
    """
    if end is None:
        end = _default_end(job, now_ms, start, step_ms)
    if start is None:
        start = max(end - since, 0) if since is not None else _default_start(job, now_ms, end)
    return TimeRange(start, end)


def _default_end(job: Job, now_ms: int, start: int | None, step_ms: int | None) -> int:
    if find_end(job) is None:
        return min(now_ms + 1, MAX_TIME_MS)
    whole = compute_life(job, now_ms)
    begin = whole.start_ms if start is None else min(start, whole.end_ms)
    step = step_ms or choose_step(TimeRange(max(begin, 0), whole.end_ms))
    return min(ceil_to(whole.end_ms, step), MAX_TIME_MS)


def _default_start(job: Job, now_ms: int, end: int) -> int:
    if find_end(job) is None:
        return max(end - HOUR, 0)
    return min(compute_life(job, now_ms).start_ms, end)
