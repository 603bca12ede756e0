"""Shared by operations: pages, ranges, the instances of a training job, parameter rows."""

from collections.abc import Iterable
from typing import NamedTuple

from jobmeter.dialects.alibaba.operation import Arguments, ordered_range
from jobmeter.dialects.base import Parameter
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Job, JobView
from jobmeter.model.time import HOUR, TimeRange, ceil_to
from jobmeter.query.defaults import job_end, job_start

MAX_PAGE_SIZE = 1_000
MAX_PAGE_NUMBER = 1_000_000
DEFAULT_PAGE_SIZE = 100

TRAINING_JOB = Parameter("TrainingJobId", "path", "The job, by its id.", required=True)
TIME = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
START = Parameter("StartTime", "query", f"{TIME} Default: the job's start.")
END = Parameter("EndTime", "query", f"{TIME} Default: now. Not included.")
PAGES = (
    Parameter("PageNumber", "query", "From 1. Default: 1."),
    Parameter("PageSize", "query", "1 to 1000. Default: 100."),
)


class Page(NamedTuple):
    """Which records are requested."""

    offset: int
    size: int


def page(arguments: Arguments, *, required: bool = False) -> Page:
    """PageNumber and PageSize."""
    number = arguments.integer("PageNumber", None if required else 1, 1, MAX_PAGE_NUMBER)
    size = arguments.integer("PageSize", None if required else DEFAULT_PAGE_SIZE, 1, MAX_PAGE_SIZE)
    return Page((number - 1) * size, size)


def job_range(arguments: Arguments, job: Job, now_ms: int, step_ms: int = 1) -> TimeRange:
    """From StartTime (by default the job's start) to EndTime (by default now).

    After a job's end the default EndTime is its end, rounded up to the step.
    """
    ended = job_end(job)
    end = arguments.time("EndTime", min(now_ms, ceil_to(ended + 1, step_ms)) if ended is not None else now_ms)
    end = now_ms if end is None else end
    start = arguments.time("StartTime")
    if start is None:
        begun = job_start(job)
        start = min(end, max(0, end - HOUR) if begun is None else begun)
    return ordered_range(start, end)


def instance_ids(view: JobView, replicas: Iterable[str] = ()) -> dict[str, str]:
    """The instance id of each replica: that of its pod, else ``<job>-<replica>``; ``replicas`` are further ones."""
    pods = {replica.name: replica.pod_id for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    return {name: pods.get(name) or f"{view.job.id}-{name}" for name in (*pods, *replicas)}


def replica_of(view: JobView, instance: str) -> str:
    """The replica of an instance id: that of any of its attempts' pods, ``<job>-<replica>`` or its name.

    Raises NotFoundError (``instance``).
    """
    for replica in view.replicas:
        if instance in {replica.pod_id, f"{view.job.id}-{replica.name}", replica.name}:
            return replica.name
    raise NotFoundError(f"The specified InstanceId {instance} does not exist.", "instance", instance)
