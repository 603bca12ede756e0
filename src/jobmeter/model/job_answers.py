"""Bodies of our own API's answers about jobs and their comparison, which its clients read too.

A server writes every field. Fields have defaults for clients of earlier servers that lack them. Times are epoch
milliseconds; unknown values are None, null in JSON.
"""

from collections.abc import Sequence

import msgspec

from jobmeter.model.answers import ComparedLine, DeviceBody, MetricSummary
from jobmeter.model.catalog import find
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import Allocation, Job, JobState, Replica
from jobmeter.model.quantity import quantity

_SETTINGS = ("type", "user", "project", "resource_group", "workspace", "command")


class ComparedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Setting of compared jobs: a text for each job in their order, empty if a job lacks the setting."""

    name: str
    texts: list[str] = []
    equal: bool = False


def compare_settings(jobs: Sequence[Job]) -> list[ComparedSetting]:
    """Return every setting of any of the jobs: facts of the record, type of machine, labels, and limits."""
    stated = [
        {
            **{name.replace("_", " "): str(getattr(job, name)) for name in _SETTINGS},
            "instance type": "" if job.instance_type is None else job.instance_type.name or job.instance_type.id,
            **{f"label {name}": text for name, text in job.labels.items()},
            **{name: quantity(value, _unit(name)) for name, value in job.limits.items()},
        }
        for job in jobs
    ]
    names = dict.fromkeys(name for one in stated for name, text in one.items() if text)
    found = [(name, [one.get(name, "") for one in stated]) for name in names]
    return [ComparedSetting(name=name, texts=texts, equal=len(set(texts)) == 1) for name, texts in found]


def _unit(metric: str) -> str:
    found = find(metric)
    return found.unit if found else ""


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
