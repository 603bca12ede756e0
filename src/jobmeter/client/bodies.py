"""Answers of a server as plain structs. Times are epoch milliseconds; unknown fields are None."""

import msgspec

from jobmeter.model.answers import ComparedLine, DeviceBody, MetricSummary
from jobmeter.model.comparison import ComparedSetting
from jobmeter.model.finding import FindingSummary
from jobmeter.model.job import Allocation, Job, Replica


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Page of jobs, the number of all matches, and the findings of the page's jobs."""

    jobs: list[Job] = []
    total: int = 0
    findings: list[FindingSummary] = []


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a job over its whole life, or until now. Times in epoch milliseconds."""

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
    """Job with all its parts."""

    job: Job
    replicas: list[Replica] = []
    allocations: list[Allocation] = []
    devices: list[DeviceBody] = []
    nodes: list[str] = []
    summary: JobSummary = msgspec.field(default_factory=JobSummary)


class MetricLine(msgspec.Struct, frozen=True, kw_only=True):
    """Line of an answer: ``points`` are (bucket start in epoch ms, value), ascending; missing values are absent."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None
    points: list[tuple[int, float]] = []

    @property
    def title(self) -> str:
        """Title of the line: its replica and device; else its node, or ``job``."""
        return " ".join(part for part in (self.replica, self.device) if part) or self.node or "job"


class MetricAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an answer, with their range, step and tiers."""

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
    """Log line: ``time`` in milliseconds, ``time_ns`` in nanoseconds; ``level`` may be absent."""

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
    """Job, its usage over its life, and its stored findings."""

    job: Job
    summary: JobSummary = msgspec.field(default_factory=JobSummary)
    findings: FindingSummary | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs side by side, with times since each one's start; ``step`` in ms is equal for all lines."""

    jobs: list[ComparedJob] = []
    step: int = 0
    lines: list[ComparedLine] = []
    settings: list[ComparedSetting] = []


class TimelineMoment(msgspec.Struct, frozen=True):
    """Entry of a job's timeline, at ``time`` (epoch ms); see ``GET /jobs/{job}/timeline``."""

    time: int
    kind: str = ""
    name: str = ""
    text: str = ""
    replica: str = ""
    node: str = ""


class IngestReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of accepted and rejected samples, records and lines: see ``docs/reference/wire-format.md``."""

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = {}
    lines: int = 0
    rejected_lines: dict[str, int] = {}
    time: int = 0
    unknown: list[str] = []
