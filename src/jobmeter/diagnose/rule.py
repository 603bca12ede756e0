"""The contract of rules, and the names that a rule needs."""

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Evidence, Finding, FindingRole, Severity, Subject

__all__ = ["Case", "Evidence", "Finding", "FindingRole", "Findings", "Numbers", "Rule", "Severity", "Subject", "Weight"]

MOST_LINES = 20
"""Most log lines in the evidence of one finding."""
_LONGEST = 500
THRESHOLDS = "causes"
"""The table of thresholds that rules about why a replica ended share."""
Findings = Iterator[Finding]
Find = Callable[["Rule", Case, Numbers], Findings]


class Weight(IntEnum):
    """Degrees to which a cause of a job's end is specific, most specific first."""

    SPECIFIC = 0
    """It states what went wrong."""
    GENERIC = 1
    """It states how it failed: an exception."""
    SIGNAL = 2
    """It states that it was ended, not why: a signal, a lost rank."""
    FALLBACK = 3
    """It states only that something went wrong."""
    CONSEQUENCE = 4
    """A consequence in other replicas: a collective that waits for ever."""


def _find_nothing(_rule: "Rule", _case: Case, _numbers: Numbers) -> Findings:
    return iter(())


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: a pure function from a case to findings, above which it stands as a decorator.

    ``metrics`` and ``counters`` (read as their growth in each step) are metrics of the job that the rule needs,
    ``nodes`` metrics of its nodes. ``kernel`` is a search for kernel log lines, in the form of ``model.log_query``. It
    finds lines about the job. With ``of_nodes`` it finds all lines of the job's nodes, with ``of_devices`` lines of
    nodes where the job had devices. ``lines`` is a search in the whole log of the job. ``cause`` is set for a rule
    about the cause of a replica's end. ``title`` is its heading, ``sees`` a sentence about what it detects, ``advice``
    a sentence about the remedy, and ``source`` the origin of the rule.
    """

    title: str
    advice: str
    source: str
    name: str = ""
    """By default the name of the function."""
    sees: str = ""
    """By default the docstring of the module, for a rule of this package."""
    find: Find = _find_nothing
    metrics: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    kernel: str = ""
    lines: str = ""
    of_nodes: bool = False
    of_devices: bool = False
    of_kills: bool = False
    """True to find also lines without a job that were written when SIGKILL ended a replica of the job on that node."""
    cause: Weight | None = None
    explains: bool = False
    """True if a critical finding explains the end of a replica for which no specific cause was found."""
    lasts: bool = False
    """True if a critical finding stays open while the job has the device: the fault lasts until a reset."""
    waits: bool = False
    """True if a finding is a consequence of a rank that ended, or was lost, before the finding began."""
    hides: frozenset[str] = frozenset()
    """Rules whose findings are left out as consequences: about the same subject; any, if this finding is on the job."""
    running: bool = False
    """True for a rule that is also evaluated while jobs run, which reads its metrics each time. Info does not open."""
    suspects: Callable[[Case, Numbers], int | None] | None = None
    """Return the time (epoch ms) since which a running job may have a fault that the stacks of its ranks would show."""
    numbers: tuple[tuple[str, float | str, str], ...] = ()
    """Thresholds of a plug-in's rule: name, value (a text for a time: ``5m``), origin. Own rules have a file."""
    find_facts: Find | None = None
    """For a rule with a ``cause``: returns findings that are no causes, with the thresholds of the rule's own name."""

    def __call__(self, find: Find) -> "Rule":
        """Return the rule with its function."""
        return replace(self, find=find, name=self.name or find.__name__)

    def evaluate(self, case: Case, numbers: Numbers) -> Findings:
        """Return the findings in a case by the rule's thresholds. Kinds of rules that share their code override it."""
        return self.find(self, case, numbers)

    @property
    def thresholds(self) -> str:
        """The name of the rule's table of thresholds."""
        return self.name if self.cause is None else THRESHOLDS

    def report(
        self,
        subject: Subject,
        severity: Severity,
        span: tuple[int, int],
        evidence: Sequence[Evidence],
        confidence: float = 0.9,
        role: FindingRole = FindingRole.ROOT,
        sentence: str = "",
    ) -> Finding:
        """Make a finding of the rule over ``span`` (epoch ms). ``examine`` adds a ``sentence`` if it is missing."""
        return Finding(
            rule=self.name,
            role=role,
            severity=severity,
            confidence=round(confidence, 2),
            subject=subject,
            start=span[0],
            end=span[1],
            evidence=list(evidence),
            advice=self.advice,
            source=self.source,
            sentence=sentence,
        )

    def make_collected(
        self,
        case: Case,
        subject: Subject,
        severity: Severity,
        head: Evidence,
        evidence: Sequence[Evidence],
        confidence: float,
    ) -> Finding:
        """Make a finding that sums up lines and events, from the first to the last of them."""
        times = [one.time or case.span.end_ms for one in evidence]
        shown = [head, *evidence[: MOST_LINES - 1]]
        return self.report(subject, severity, (min(times), max(times)), shown, confidence)


def quote_line(text: str) -> str:
    """Return a log line in the form of evidence: at most 500 characters."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
