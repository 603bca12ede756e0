"""Findings: conclusions of rules about a job, with their evidence."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """Severity of a finding, least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Role(StrEnum):
    """Relation of a finding to the other findings of its job."""

    ROOT = "root"
    """Root cause: no other finding explains it."""
    CONFIRMATION = "confirmation"
    """Confirmation of another finding."""
    CASCADE = "cascade"
    """Consequence of another finding."""


class Subject(msgspec.Struct, frozen=True):
    """Subject of a finding: ``kind`` is job, replica, device, node or filesystem; a device is ``node-1/gpu0``."""

    kind: str
    name: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence for a finding, as a sentence and, if available, as figures.

    ``kind`` is metric, log, event or status. ``value`` was observed and ``limit`` is allowed, both in ``unit``.
    """

    kind: str
    text: str
    time: int | None = None
    replica: str = ""
    metric: str = ""
    value: float | None = None
    limit: float | None = None
    unit: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Conclusion of a rule, from ``start`` to ``end`` (epoch ms). ``confidence`` is from 0 to 1; ``source`` an address.

    ``sentence`` states it in one line, with a readable subject; ``evidence`` has the reasons, with figures.
    """

    rule: str
    role: Role
    severity: Severity
    confidence: float
    subject: Subject
    start: int
    end: int
    evidence: list[Evidence]
    advice: str
    source: str

    sentence: str = ""

    @property
    def message(self) -> str:
        """Finding as the message of an event: its rule and subject before its sentence."""
        sentence = self.sentence or "; ".join(one.text for one in self.evidence[:1])
        return f"{self.rule} ({self.subject.kind} {self.subject.name}): {sentence}"


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Stored findings of a job: their number (counted to 200), the worst severity, and their rules, worst first."""

    id: str
    project: str
    severity: Severity
    count: int
    rules: list[str]
