"""Shared by the rules about a job's end: patterns, exit statuses and reasons that indicate a cause."""

import re
from collections.abc import Callable, Sequence

import msgspec

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.lives import Death, deaths
from jobmeter.diagnose.rule import MOST_LINES, Rule, Weight, quoted
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.event import Event
from jobmeter.model.finding import Evidence, Finding, Role, Severity
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine

_NS = 1_000_000
_INTERRUPTIONS = {"KeyboardInterrupt", "SystemExit"}
THRESHOLDS = "causes"
_NVRX = "https://github.com/NVIDIA/nvidia-resiliency-ext"


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """The indications of a cause, as case-insensitive patterns. ``lines`` may stand in any of a replica's last lines.

    ``raised`` (a class and message) in the exception that ended it or, where no exception did, in its very last lines.
    ``reasons`` in the reason of the end in the record or an event. ``exits`` are exit statuses that suffice; with
    ``exception`` any exception that ended it suffices. ``states`` are the job's states in which it is looked for.
    """

    lines: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    exits: frozenset[int] = frozenset()
    exception: bool = False
    states: frozenset[JobState] = frozenset({JobState.FAILED, JobState.STOPPED, JobState.RUNNING})


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a rule about an end."""

    name: str
    sees: str
    advice: str
    signs: Signs
    weight: Weight = Weight.SPECIFIC
    severity: Severity = Severity.CRITICAL
    confidence: float = 0.9
    source: str = _NVRX
    running: bool = False


def rule_of(cause: Cause) -> Rule:
    """The rule that looks for a cause in each replica that failed."""
    signs = _Compiled(cause.signs)

    def find(case: Case, numbers: Numbers) -> list[Finding]:
        if case.job.state not in cause.signs.states:
            return []
        found = []
        for death in deaths(case, numbers):
            evidence = signs.evidence(case, death)
            if evidence:
                found.append(root_finding(rule, death, evidence, cause.severity, cause.confidence))
        return found

    rule = Rule(
        name=cause.name,
        sees=cause.sees,
        advice=cause.advice,
        source=cause.source,
        find=find,
        cause=cause.weight,
        thresholds=THRESHOLDS,
        running=cause.running,
    )
    return rule


def root_finding(
    rule: Rule, death: Death, evidence: Sequence[Evidence], severity: Severity, confidence: float
) -> Finding:
    """The finding of a cause; it begins with its first evidence, and ends with the replica."""
    start = min((one.time for one in evidence if one.time is not None), default=death.end)
    role = Role.CASCADE if rule.cause is Weight.CONSEQUENCE else Role.ROOT
    shown = evidence[:MOST_LINES]
    return rule.finding(death.subject, severity, (min(start, death.end), death.end), shown, confidence, role)


def ended(death: Death) -> Evidence:
    """How it ended, as evidence."""
    if death.exit_code is None:
        text = f"{death.subject.name} failed" + (f": {quoted(death.reason)}" if death.reason else "")
    elif death.signal is not None:
        text = f"{death.subject.name} was ended by signal {death.signal} (exit status {death.exit_code})"
    else:
        text = f"{death.subject.name} exited with status {death.exit_code}"
    return Evidence(kind="status", text=text, time=death.end, replica=_replica(death))


def line_evidence(line: LogLine) -> Evidence:
    """A log line, as evidence."""
    return Evidence(kind="log", text=quoted(line.text), time=line.time_ns // _NS, replica=line.replica)


def event_evidence(event: Event) -> Evidence:
    """An event, as evidence."""
    return Evidence(kind="event", text=f"{event.reason}: {event.message}", time=event.time, replica=event.replica)


class _Compiled:
    """Signs with their patterns compiled."""

    def __init__(self, signs: Signs) -> None:
        self._signs = signs
        self._lines = _matcher(signs.lines)
        self._raised = _matcher(signs.raised)
        self._reasons = _matcher(signs.reasons)

    def evidence(self, case: Case, death: Death) -> list[Evidence]:
        """The evidence of the cause in one replica's end, its status last; empty where there is none."""
        found = [line_evidence(line) for line in death.lines if self._lines(line.text)]
        found += self._of_exception(death)
        found += [event_evidence(event) for event in _events(case, death) if self._reasons(_words(event))]
        if not found and self._reasons(death.reason):
            found.append(Evidence(kind="status", text=quoted(death.reason), time=death.end, replica=_replica(death)))
        if death.exit_code in self._signs.exits or found:
            found.append(ended(death))
        return found

    def _of_exception(self, death: Death) -> list[Evidence]:
        raised = death.raised
        if raised is not None:
            own = self._signs.exception and death.signal is None and raised.name not in _INTERRUPTIONS
            return [line_evidence(line) for line in raised.lines] if own or self._raised(raised.text) else []
        return [line_evidence(line) for line in death.tail if self._raised(line.text)]


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    if not patterns:
        return lambda _text: False
    compiled = re.compile("|".join(patterns), re.IGNORECASE)
    # The text is untrusted: an overlong line is not searched to its end.
    return lambda text: compiled.search(text[:4_000]) is not None


def _events(case: Case, death: Death) -> list[Event]:
    """The texts about its end, without Jobmeter's own about states and findings."""
    name = _replica(death)
    return [
        event
        for event in case.events
        if event.source != "state" and event.reason != FINDING and (not name or event.replica in {name, ""})
    ]


FINDING = "Finding"
"""The reason of events of findings."""


def _words(event: Event) -> str:
    return f"{event.reason}: {event.message}"


def _replica(death: Death) -> str:
    return death.subject.name if death.subject.kind == "replica" else ""


__all__ = [
    "FINDING",
    "THRESHOLDS",
    "Cause",
    "Signs",
    "ended",
    "event_evidence",
    "line_evidence",
    "root_finding",
    "rule_of",
]
