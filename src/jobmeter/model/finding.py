"""Findings: conclusions of rules about a job, with their evidence."""

import re
from enum import StrEnum

import msgspec

from jobmeter.model.time import SECOND, format_iso, parse_time

_LIKEWISE = re.compile(r"; (\d{1,9}) more [a-z]+s likewise$", re.ASCII)
_RULE = re.compile(r"[a-z0-9_]+")
_SINCE = re.compile(r" \(since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\)$", re.ASCII)


class Severity(StrEnum):
    """Severity of a finding, least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class FindingRole(StrEnum):
    """Relation of a finding to the other findings of its job."""

    ROOT = "root"
    """Root cause: no other finding explains it."""
    CONFIRMATION = "confirmation"
    """Confirmation of another finding."""
    CASCADE = "cascade"
    """Consequence of another finding."""


_SEVERITIES, _ROLES = tuple(Severity), tuple(FindingRole)


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
    ``replicas`` are the replicas that lists and maps of ranks mark: the subject, or the users of its device.
    """

    rule: str
    role: FindingRole
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
        """Finding as the message of an event: its rule and subject before its sentence; see ``read_message``."""
        sentence = self.sentence or "; ".join(one.text for one in self.evidence[:1])
        return f"{self.rule} ({self.subject.kind} {self.subject.name}): {sentence}"

    @property
    def opening_message(self) -> str:
        """Return the message with the time at which the fault began."""
        return f"{self.message} (since {format_iso(self.start // SECOND * SECOND)})"


class FindingMessage(msgspec.Struct, frozen=True):
    """The message of an event about a finding; ``subject`` is its kind and name, ``start`` in epoch ms or None."""

    rule: str
    subject: str
    sentence: str
    start: int | None


def read_message(message: str, subject: str = "") -> FindingMessage | None:
    """Parse the message of an event about a finding; None for any other message.

    Pass the event's ``subject`` if it has one: a name may contain the text that ends it in the message.
    """
    rule = _RULE.match(message)
    if rule is None:
        return None
    head, _, rest = message[rule.end() :].partition(f" ({subject}): " if subject else "): ")
    return FindingMessage(
        rule[0], subject or head.removeprefix(" ("), _SINCE.sub("", rest) or message, read_start(rest)
    )


def read_start(message: str) -> int | None:
    """Return the time at which the fault of a message began, in epoch ms; None if the message has no such time."""
    since = _SINCE.search(message)
    return parse_time(since[1], "since") if since else None


def rank_severity(
    severity: Severity,
    role: FindingRole = FindingRole.ROOT,
    *,
    passed: bool = False,
    reported: bool = False,
    start: int = 0,
    rule: str = "",
) -> tuple[bool, int, int, bool, int, str]:
    """Return the sort key of a job's finding, worst first, for every list that shows findings.

    ``passed``: an event has ended the finding of a running job. ``reported``: the finding was reported while a now
    finished job ran; findings about its end sort before it. ``start`` is in epoch ms, compared in whole seconds as in
    messages.
    """
    return (passed, -_SEVERITIES.index(severity), _ROLES.index(role), reported, start // SECOND, rule)


def extend_sentence(sentence: str, more: int, kind: str) -> str:
    """Extend a finding's sentence, so that it stands for ``more`` other subjects of its kind too."""
    return f"{sentence}; {more} more {kind}s likewise"


def count_subjects(sentence: str) -> int:
    """Return the number of subjects of a finding, see ``extend_sentence``."""
    more = _LIKEWISE.search(sentence)
    return 1 + (int(more[1]) if more else 0)


class ListedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A stored finding of a job: its fault began at ``start`` and was reported at ``time``.

    Times in epoch ms. ``open``: no event has reported its end.
    """

    project: str
    job: str
    rule: str
    severity: Severity
    sentence: str
    start: int
    time: int
    open: bool


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Stored findings of a job: their number (counted to 200), the worst severity, and their rules, worst first.

    ``sentence`` is the sentence of the worst one, and ``start`` the time at which its fault began (epoch ms). In a
    running job ``open`` findings come first; the others have passed. ``idle_devices`` are devices that open findings
    call idle.
    """

    id: str
    project: str
    severity: Severity
    count: int
    rules: list[str]
    sentence: str = ""
    start: int | None = None
    open: int = 0
    idle_devices: int = 0
