"""A server's answers as plain structs. Times are epoch milliseconds; unknown fields are None."""

import msgspec

from jobmeter.model.answers import ComparedLine, DeviceBody, MetricSummary
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import Allocation, Job, Replica


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs, and how many match in all; what was found in those of them that have findings."""

    jobs: list[Job] = []
    total: int = 0
    findings: list[FindingSummary] = []


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a job used over its whole life, until now while it runs. Times in epoch milliseconds."""

    duration_ms: int | None = None
    start_ms: int = 0
    step_ms: int = 1
    replicas: int = 0
    nodes: int = 0
    devices: int = 0
    metrics: list[MetricSummary] = []
    gpu_energy_joules: float | None = None

    def find(self, metric: str) -> MetricSummary | None:
        """The summary of that metric; None when the job was not measured for it."""
        return next((one for one in self.metrics if one.metric == metric), None)


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One job with everything that belongs to it."""

    job: Job
    replicas: list[Replica] = []
    allocations: list[Allocation] = []
    devices: list[DeviceBody] = []
    nodes: list[str] = []
    summary: JobSummary = msgspec.field(default_factory=JobSummary)


class MetricLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answer: ``points`` are (bucket start in epoch ms, value), ascending; what is missing is absent."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    points: list[tuple[int, float]] = []

    @property
    def title(self) -> str:
        """Its replica and device; its node, or ``job``, where it has neither."""
        return " ".join(part for part in (self.replica, self.device) if part) or self.node or "job"


class MetricAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of the answer, and their range, step and tiers."""

    job: str = ""
    project: str = ""
    start: int = 0
    end: int = 0
    step: int = 0
    by: str = ""
    statistic: str = ""
    lines: list[MetricLine] = []
    samples: int = 0
    tiers: list[str] = []


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One log line: ``time`` in milliseconds, ``time_ns`` the same moment in nanoseconds; None: it names no level."""

    text: str
    time: int = 0
    time_ns: str = "0"
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = ""
    level: str | None = None
    facility: str = ""
    severity: int | None = None
    tag: str = ""
    job: str = ""


class ComparedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what it used over its life."""

    job: Job
    summary: JobSummary = msgspec.field(default_factory=JobSummary)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs beside each other, times since each one's start; ``step`` in ms is that of every line."""

    jobs: list[ComparedJob] = []
    step: int = 0
    lines: list[ComparedLine] = []


class TimelineMoment(msgspec.Struct, frozen=True):
    """One thing on a job's timeline, at ``time`` (epoch ms); see ``GET /jobs/{job}/timeline``."""

    time: int
    kind: str = ""
    name: str = ""
    text: str = ""
    replica: str = ""
    node: str = ""


class IngestReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples, records and lines were accepted and rejected: see ``docs/reference/wire-format.md``."""

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = {}
    lines: int = 0
    rejected_lines: dict[str, int] = {}
    time: int = 0
    unknown: list[str] = []
