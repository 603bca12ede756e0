"""Shared by the rules about a job's end: patterns, exit statuses and reasons that indicate a cause."""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.resources import files

import msgspec

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.lives import Death, list_deaths, strip_rank
from jobmeter.diagnose.rule import MOST_LINES, Find, Findings, Rule, Weight, quote_line
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.event import FINDING, Event, EventType
from jobmeter.model.finding import Evidence, Finding, FindingRole, Severity
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine
from jobmeter.model.time import NS_PER_MS

_INTERRUPTIONS = {"KeyboardInterrupt", "SystemExit"}
_NVRX = "https://github.com/NVIDIA/nvidia-resiliency-ext"


class Cause(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A rule about the cause of a replica's end: its texts, and case-insensitive patterns that indicate the cause.

    ``lines`` may match any of a replica's last lines, except quoted source code. ``raised`` matches the class and
    message of the exception that ended it, or its very last lines if no exception did. ``reasons`` matches the reason
    of the end in the record or an event. ``exits`` are exit statuses that suffice. With ``exception``, any exception
    that ended the replica suffices. ``states`` are the states of jobs in which the rule searches.
    """

    name: str
    title: str
    sees: str
    advice: str
    lines: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    exits: frozenset[int] = frozenset()
    exception: bool = False
    states: frozenset[JobState] = frozenset({JobState.FAILED, JobState.STOPPED, JobState.RUNNING})
    weight: Weight = Weight.SPECIFIC
    severity: Severity = Severity.CRITICAL
    confidence: float = 0.9
    source: str = _NVRX
    running: bool = False
    find_facts: Find | None = None
    metrics: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """See ``Rule``."""

    @property
    def rule(self) -> Rule:
        """Build the rule that searches for the cause in each failed replica."""
        return Rule(
            name=self.name,
            title=self.title,
            sees=self.sees,
            advice=self.advice,
            source=self.source,
            find=self._find,
            cause=self.weight,
            running=self.running,
            find_facts=self.find_facts,
            metrics=self.metrics,
            nodes=self.nodes,
        )

    @cached_property
    def _matchers(self) -> tuple[Callable[[str], bool], ...]:
        """Return tests that are True if a text matches ``lines``, ``raised`` and ``reasons``."""
        return tuple(map(_matcher, (self.lines, self.raised, self.reasons)))

    def _find(self, rule: Rule, case: Case, numbers: Numbers) -> Findings:
        if case.job.state not in self.states:
            return
        for death in list_deaths(case, numbers):
            evidence = self._find_evidence(case, death)
            if evidence:
                yield make_root_finding(rule, death, evidence, self.severity, self.confidence)

    def _find_evidence(self, case: Case, death: Death) -> list[Evidence]:
        """Return the evidence of the cause in one replica's end, its status last; empty without evidence."""
        in_lines, _, in_reasons = self._matchers
        found = [make_line_evidence(line) for line in death.output if in_lines(line.text)]
        found += self._collect_exception_evidence(death)
        found += [make_event_evidence(event) for event in _events(case, death) if in_reasons(_words(event))]
        if not found and in_reasons(death.reason):
            found.append(
                Evidence(kind="status", text=quote_line(death.reason), time=death.end, replica=_replica(death))
            )
        if death.exit_code in self.exits or found:
            found.append(describe_end(death))
        return found

    def _collect_exception_evidence(self, death: Death) -> list[Evidence]:
        _, was_raised, _ = self._matchers
        raised = death.raised
        if raised is None:
            return [make_line_evidence(line) for line in death.tail if was_raised(line.text)]
        own = self.exception and death.signal is None and raised.name not in _INTERRUPTIONS
        return [make_line_evidence(line) for line in raised.lines] if own or was_raised(raised.text) else []


def load_causes() -> Iterator[Rule]:
    """Yield the rules of ``causes.toml``."""
    for name, table in tomllib.loads(files("jobmeter.diagnose").joinpath("causes.toml").read_text("utf-8")).items():
        yield msgspec.convert({"name": name, **table}, Cause).rule


def make_root_finding(
    rule: Rule, death: Death, evidence: Sequence[Evidence], severity: Severity, confidence: float
) -> Finding:
    """Make the finding of a cause. It begins with its first evidence and ends with the replica."""
    start = min((one.time for one in evidence if one.time is not None), default=death.end)
    role = FindingRole.CASCADE if rule.cause is Weight.CONSEQUENCE else FindingRole.ROOT
    shown = evidence[:MOST_LINES]
    return rule.report(death.subject, severity, (min(start, death.end), death.end), shown, confidence, role)


def describe_end(death: Death) -> Evidence:
    """Return the end of a replica as evidence."""
    if death.exit_code is None:
        text = f"{death.subject.name} failed" + (f": {quote_line(death.reason)}" if death.reason else "")
    elif death.signal is not None:
        text = f"{death.subject.name} was ended by signal {death.signal} (exit status {death.exit_code})"
    else:
        text = f"{death.subject.name} exited with status {death.exit_code}"
    return Evidence(kind="status", text=text, time=death.end, replica=_replica(death))


def make_line_evidence(line: LogLine) -> Evidence:
    """Convert a log line to evidence."""
    return Evidence(kind="log", text=quote_line(line.text), time=line.time_ns // NS_PER_MS, replica=line.replica)


def make_event_evidence(event: Event) -> Evidence:
    """Convert an event to evidence."""
    return Evidence(kind="event", text=f"{event.reason}: {event.message}", time=event.time, replica=event.replica)


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    if not patterns:
        return lambda _text: False
    compiled = re.compile("|".join(patterns), re.IGNORECASE)
    # The text is untrusted: an overlong line is not searched to its end.
    return lambda text: compiled.search(strip_rank(text[:4_000])) is not None


def _events(case: Case, death: Death) -> list[Event]:
    """Return the texts of events about the end, without Jobmeter's events about states, findings and alerts."""
    name = _replica(death)
    return [
        event
        for event in case.events
        if event.source != "state"
        and event.reason != FINDING
        and event.type is not EventType.ALERT
        and (not name or event.replica in {name, ""})
    ]


def _words(event: Event) -> str:
    return f"{event.reason}: {event.message}"


def _replica(death: Death) -> str:
    return death.subject.name if death.subject.kind == "replica" else ""
