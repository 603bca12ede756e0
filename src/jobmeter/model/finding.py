"""Findings: the conclusions of rules about a job, with their evidence."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a finding matters, least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Role(StrEnum):
    """How a finding relates to the others of its job."""

    ROOT = "root"
    """Nothing known explains it."""
    CONFIRMATION = "confirmation"
    """It confirms another one."""
    CASCADE = "cascade"
    """It followed from another one."""


class Subject(msgspec.Struct, frozen=True):
    """What a finding is about: ``kind`` is job, replica, device, node or filesystem; a device is ``node-1/gpu0``."""

    kind: str
    name: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for a finding, as a sentence and, where available, as figures.

    ``kind`` is metric, log, event or status. ``value`` was observed where ``limit`` is allowed, both in ``unit``.
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

    ``sentence`` says it in one line, with the subject as people know it; ``evidence`` has the reasons, with figures.
    ``replicas`` are those that it is about, by themselves or by a device of theirs: what lists and maps of ranks mark.
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
    replicas: list[str] = []

    @property
    def message(self) -> str:
        """The finding as the message of an event: its rule and subject before its sentence."""
        sentence = self.sentence or "; ".join(one.text for one in self.evidence[:1])
        return f"{self.rule} ({self.subject.kind} {self.subject.name}): {sentence}"


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The stored findings of a job: how many (counted to 200), the worst severity, and their rules, worst first."""

    id: str
    project: str
    severity: Severity
    count: int
    rules: list[str]
