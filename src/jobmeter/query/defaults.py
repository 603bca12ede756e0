"""Defaults of a question's parameters."""

from jobmeter.model.job import Job
from jobmeter.model.steps import STEPS
from jobmeter.model.time import HOUR, MAX_TIME_MS, MINUTE, TimeRange, ceil_to, floor_to

DEFAULT_BUCKETS = 240

CORE_METRICS: tuple[str, ...] = (
    "cpu.usage",
    "cpu.utilization",
    "memory.usage",
    "memory.utilization",
    "network.receive",
    "network.transmit",
    "disk.read",
    "disk.write",
    *(
        f"{prefix}.{name}"
        for prefix in ("gpu", "npu")
        for name in ("utilization", "memory.usage", "memory.utilization", "power", "energy", "temperature")
    ),
)
"""The metrics of a job that are reported by default."""

SUMMARY_METRICS = tuple(
    name for core in CORE_METRICS for name in ((core, "memory.peak") if core == "memory.usage" else (core,))
)
"""The metrics of a job's summary."""


_LATE_MS = 30_000
"""How long after a job's end a sample still belongs to the job."""


_UNREPORTED_MS = MINUTE
"""How long a sample may be stored before ``last_sample`` has its time: see ``jobmeter.ingest.observe``."""


def default_step(span: TimeRange, buckets: int = DEFAULT_BUCKETS) -> int:
    """The smallest of ``STEPS``, in milliseconds, that cuts the range into at most ``buckets``; a day at most."""
    fits = (step for step in STEPS if (ceil_to(span.end_ms, step) - floor_to(span.start_ms, step)) // step <= buckets)
    return next(fits, STEPS[-1])


def life(job: Job, now_ms: int) -> TimeRange:
    """From a job's start to just after its end (now, while it runs): what is not recorded is taken from its samples."""
    start, end = job_start(job), job_end(job)
    # The last reading comes after the end, which a scheduler gives in whole seconds.
    if end is not None and now_ms < end + _LATE_MS + _UNREPORTED_MS:
        end = max(end, min(now_ms, end + _LATE_MS))
    elif end is not None and job.last_sample is not None and end < job.last_sample <= end + _LATE_MS:
        end = job.last_sample
    end = min((now_ms if end is None else end) + 1, MAX_TIME_MS)
    return TimeRange(min(end if start is None else start, end), end)


def job_created(job: Job) -> int | None:
    """When a job was created, in epoch milliseconds, as listings sort by it; None where unknown.

    Without a recorded creation: its start, else its first sample.
    """
    return next((time for time in (job.created, job.start, job.first_sample) if time is not None), None)


def job_start(job: Job) -> int | None:
    """When a job began, in epoch milliseconds: its recorded start, else its first sample, else when it was created."""
    return next((time for time in (job.start, job.first_sample, job.created) if time is not None), None)


def job_end(job: Job) -> int | None:
    """When a finished job ended: its recorded end, else its last sample. None while it runs or when unknown."""
    if not job.state.finished:
        return None
    return job.end if job.end is not None else job.last_sample


def default_range(
    job: Job,
    now_ms: int,
    *,
    start: int | None = None,
    end: int | None = None,
    since: int | None = None,
    step_ms: int | None = None,
) -> TimeRange:
    """The range of a question that names some or none of ``start``, ``end`` (epoch ms), ``since`` (ms before the end).

    The default of a finished job is its whole life, its end rounded up to the step so that the last bucket is
    complete; of a running one the last hour. Raises InvalidRequestError when the range would end before it starts.
    """
    if end is None:
        end = _default_end(job, now_ms, start, step_ms)
    if start is None:
        start = max(end - since, 0) if since is not None else _default_start(job, now_ms, end)
    return TimeRange(start, end)


def _default_end(job: Job, now_ms: int, start: int | None, step_ms: int | None) -> int:
    if job_end(job) is None:
        return min(now_ms + 1, MAX_TIME_MS)
    whole = life(job, now_ms)
    begin = whole.start_ms if start is None else min(start, whole.end_ms)
    step = step_ms or default_step(TimeRange(max(begin, 0), whole.end_ms))
    return min(ceil_to(whole.end_ms, step), MAX_TIME_MS)


def _default_start(job: Job, now_ms: int, end: int) -> int:
    if job_end(job) is None:
        return max(end - HOUR, 0)
    return min(life(job, now_ms).start_ms, end)
