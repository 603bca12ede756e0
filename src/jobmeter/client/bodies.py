"""Answers of a server as plain structs. Times are epoch milliseconds; unknown fields are None."""

import msgspec


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
