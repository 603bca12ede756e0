"""A server's answers as plain structs. Times are epoch milliseconds; unknown fields are None."""

import msgspec

from jobmeter.model.job import Allocation, Job, Replica


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs, and how many match in all."""

    jobs: list[Job] = []
    total: int = 0


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a replica of a job has or had."""

    node: str = ""
    device: str = ""
    replica: str = ""
    rank: int | None = None


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a job over its life. None: not measured.

    ``job_mean``, ``job_max`` and ``points`` (in steps of ``JobSummary.step_ms``) are of the job: of its members
    together where the unit adds up. ``mean`` and ``max`` are those of one member. ``total`` is a counter's increase
    over all members in ``total_unit``.
    """

    metric: str
    unit: str = ""
    job_mean: float | None = None
    job_max: float | None = None
    mean: float | None = None
    max: float | None = None
    last: float | None = None
    total: float | None = None
    total_unit: str = ""
    points: list[float | None] = []


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
    devices: list[DeviceUse] = []
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


class LatestValue(msgspec.Struct, frozen=True, kw_only=True):
    """The newest value of one line, and when it was measured."""

    metric: str
    unit: str = ""
    replica: str = ""
    node: str = ""
    device: str = ""
    time: int = 0
    value: float = 0.0


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


class ComparedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one job: ``points`` are (ms since the step in which the job began, value), ascending."""

    job: str
    project: str = ""
    metric: str
    unit: str = ""
    points: list[tuple[int, float]] = []


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs beside each other, times since each one's start; ``step`` in ms is that of every line."""

    jobs: list[ComparedJob] = []
    step: int = 0
    lines: list[ComparedLine] = []


class DamagedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the store that cannot be read. Times in epoch milliseconds, None where unknown."""

    table: str
    part: str = ""
    reason: str = ""
    rows: int | None = None
    start: int | None = None
    end: int | None = None


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server: rows and bytes stored, bytes in memory, requests under way by lane."""

    version: str = ""
    kernel: str = ""
    uptime_seconds: float = 0.0
    rows: dict[str, int] = {}
    bytes: dict[str, int] = {}
    window: dict[str, int] = {}
    queue_bytes: int = 0
    work: dict[str, int] = {}
    rolled_until: int | None = None
    damaged: list[DamagedPart] = []


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How many days a project's raw samples, minutes and hours are stored."""

    raw_days: int
    minute_days: int
    hour_days: int


class UsageLine(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one account and operation; amounts are decimal texts, None without a price."""

    account: str
    api: str
    operation: str
    calls: int
    failed: int
    pricing: str
    free: int | None = None
    free_left: int | None = None
    unit_price: str | None = None
    cost: str | None = None


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a month, ``[start, end)`` in epoch milliseconds, and the sum of the known costs."""

    month: str
    time_zone: str
    start: int
    end: int
    currency: str
    charge: str
    calls: int
    failed: int
    cost: str
    usage: list[UsageLine] = []


class TimelineMoment(msgspec.Struct, frozen=True):
    """One thing on a job's timeline, at ``time`` (epoch ms); see ``GET /jobs/{job}/timeline``."""

    time: int
    kind: str = ""
    name: str = ""
    text: str = ""
    replica: str = ""
    node: str = ""


class ShareToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token whose holder may read one job, and when it expires in epoch milliseconds."""

    token: str
    expires: int


class DiagnosticRule(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnostic rule: what it looks for, and what to do where it finds that."""

    name: str
    sees: str = ""
    advice: str = ""


class RuleList(msgspec.Struct, frozen=True, kw_only=True):
    """Every diagnostic rule of a server, by name."""

    rules: list[DiagnosticRule] = []


class ShipperInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log lines of a resource group are shipped to, and how far that has come; see ``/shippers``."""

    id: str
    project: str | None = None
    resource_group: str
    sink_project: str
    logstore: str
    created: int
    state: str
    waiting: int = 0
    lag_seconds: float = 0.0
    shipped: int = 0
    dropped: int = 0
    rejected: int = 0
    failures: int = 0
    error: str = ""


class IngestReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples, records and lines were accepted and rejected: see ``docs/reference/wire-format.md``."""

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = {}
    lines: int = 0
    rejected_lines: dict[str, int] = {}
    time: int = 0
    unknown: list[str] = []


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """The key that the calls are made with; ``job`` is set for a link, which opens that job alone."""

    id: str = ""
    name: str = ""
    role: str = ""
    project: str | None = None
    job: str | None = None
    expires: int | None = None
