"""Bodies of our own API's answers about jobs and their comparison, which its clients read too.

A server writes every field. Fields have defaults for clients of earlier servers that lack them. Times are epoch
milliseconds; unknown values are None, null in JSON.
"""

import msgspec

from jobmeter.model.answers import ComparedLine, DeviceBody, MetricSummary
from jobmeter.model.comparison import ComparedSetting
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import Allocation, Job, JobState, Replica


class JobBody(Job, frozen=True, kw_only=True, omit_defaults=False):
    """A job with every field, including unknown ones."""


class ReplicaBody(Replica, frozen=True, kw_only=True, omit_defaults=False):
    """An attempt of a replica, with every field."""


class AllocationBody(Allocation, frozen=True, kw_only=True, omit_defaults=False):
    """A replica had a device from ``start`` to ``end`` (null: still has it); with every field."""


class JobSizeBody(msgspec.Struct, frozen=True):
    """Number of replicas of a job, and of the devices and nodes that it has or had."""

    replicas: int
    devices: int
    nodes: int


class JobList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of jobs and the total number. ``findings`` covers jobs that have some, if requested.

    On request: ``sizes`` and ``tags``, one entry for each job in the order of ``jobs``, and ``states``, the number of
    jobs in each state that match all filters besides the state.
    """

    jobs: list[JobBody]
    total: int
    findings: list[FindingSummary] | None = None
    sizes: list[JobSizeBody] | None = None
    states: dict[str, int] | None = None
    tags: list[list[str]] | None = None


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a job over its whole life, or until now. ``duration_ms`` is absent if its start is unknown.

    ``metrics`` are the measured core metrics. ``gpu_energy_joules`` is the energy of all its GPUs, absent if
    unmeasured.
    """

    state: JobState = JobState.UNKNOWN
    duration_ms: int | None = None
    start_ms: int = 0
    step_ms: int = 1
    replicas: int = 0
    nodes: int = 0
    devices: int = 0
    metrics: list[MetricSummary] = []
    gpu_energy_joules: float | None = None

    def find(self, metric: str) -> MetricSummary | None:
        """Summary of a metric; None if it was not measured."""
        return next((one for one in self.metrics if one.metric == metric), None)


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all its parts; ``summary`` is null if it was not requested."""

    job: JobBody
    replicas: list[ReplicaBody] = []
    allocations: list[AllocationBody] = []
    devices: list[DeviceBody] = []
    nodes: list[str] = []
    summary: JobSummary | None = None

    @property
    def usage(self) -> JobSummary:
        """The summary; without one, a summary of nothing measured."""
        return self.summary or JobSummary()


class ComparedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its usage over its life, and its stored findings; null without findings."""

    job: JobBody
    summary: JobSummary = JobSummary()
    findings: FindingSummary | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs in the requested order; ``step`` in milliseconds is equal for all lines.

    Times of lines are since the start of each job. ``settings`` has each setting that any of the jobs has, with a text
    for each job.
    """

    jobs: list[ComparedJob] = []
    step: int = 0
    lines: list[ComparedLine] = []
    settings: list[ComparedSetting] = []
