"""Shared by the rules about a job's end: patterns, exit statuses and reasons that indicate a cause."""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.resources import files

import msgspec

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.failures import FailedReplica, list_failed_replicas, strip_rank
from jobmeter.diagnose.rule import MOST_LINES, Findings, Rule, Weight, quote_line
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.event import FINDING, Event, EventType
from jobmeter.model.finding import Evidence, Finding, FindingRole, Severity
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine
from jobmeter.model.time import NS_PER_MS

_INTERRUPTIONS = {"KeyboardInterrupt", "SystemExit"}


class Cause(Rule, frozen=True, kw_only=True, dict=True):
    """A rule that finds the cause of a replica's end by case-insensitive patterns.

    ``patterns`` may match any of a replica's last lines, except quoted source code. ``raised`` matches the class and
    message of the exception that ended it, or its very last lines if no exception did. ``reasons`` matches the reason
    of the end in the record or an event. ``exits`` are exit statuses that suffice. With ``exception``, any exception
    that ended the replica suffices. ``states`` are the states of jobs in which the rule searches.
    """

    patterns: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    exits: frozenset[int] = frozenset()
    exception: bool = False
    states: frozenset[JobState] = frozenset({JobState.FAILED, JobState.STOPPED, JobState.RUNNING})
    severity: Severity = Severity.CRITICAL
    confidence: float = 0.9
    source: str = "https://github.com/NVIDIA/nvidia-resiliency-ext"
    cause: Weight | None = Weight.SPECIFIC

    @cached_property
    def _matchers(self) -> tuple[Callable[[str], bool], ...]:
        """Return tests that are True if a text matches ``patterns``, ``raised`` and ``reasons``."""
        return tuple(map(_matcher, (self.patterns, self.raised, self.reasons)))

    def evaluate(self, case: Case, numbers: Numbers) -> Findings:
        """Find the cause in each failed replica."""
        for failure in list_failed_replicas(case, numbers) if case.job.state in self.states else ():
            if evidence := self._find_evidence(case, failure):
                yield make_root_finding(self, failure, evidence, self.severity, self.confidence)

    def _find_evidence(self, case: Case, failure: FailedReplica) -> list[Evidence]:
        """Return the evidence of the cause in one replica's end, its status last; empty without evidence."""
        in_lines, _, in_reasons = self._matchers
        found = [make_line_evidence(line) for line in failure.output if in_lines(line.text)]
        found += self._collect_exception_evidence(failure)
        found += [make_event_evidence(event) for event in _events(case, failure) if in_reasons(_words(event))]
        if not found and in_reasons(failure.reason):
            found.append(
                Evidence(kind="status", text=quote_line(failure.reason), time=failure.end, replica=_replica(failure))
            )
        if failure.exit_code in self.exits or found:
            found.append(describe_end(failure))
        return found

    def _collect_exception_evidence(self, failure: FailedReplica) -> list[Evidence]:
        _, was_raised, _ = self._matchers
        raised = failure.raised
        if raised is None:
            return [make_line_evidence(line) for line in failure.tail if was_raised(line.text)]
        own = self.exception and failure.signal is None and raised.name not in _INTERRUPTIONS
        return [make_line_evidence(line) for line in raised.lines] if own or was_raised(raised.text) else []


def load_causes() -> Iterator[Rule]:
    """Yield the rules of ``causes.toml``."""
    for name, table in tomllib.loads(files("jobmeter.diagnose").joinpath("causes.toml").read_text("utf-8")).items():
        yield msgspec.convert({"name": name, **table}, Cause)


def make_root_finding(
    rule: Rule, failure: FailedReplica, evidence: Sequence[Evidence], severity: Severity, confidence: float
) -> Finding:
    """Make the finding of a cause. It begins with its first evidence and ends with the replica."""
    start = min((one.time for one in evidence if one.time is not None), default=failure.end)
    role = FindingRole.CASCADE if rule.cause is Weight.CONSEQUENCE else FindingRole.ROOT
    shown = evidence[:MOST_LINES]
    return rule.report(failure.subject, severity, (min(start, failure.end), failure.end), shown, confidence, role)


def describe_end(failure: FailedReplica) -> Evidence:
    """Return the end of a replica as evidence."""
    if failure.exit_code is None:
        text = f"{failure.subject.name} failed" + (f": {quote_line(failure.reason)}" if failure.reason else "")
    elif failure.signal is not None:
        text = f"{failure.subject.name} was ended by signal {failure.signal} (exit status {failure.exit_code})"
    else:
        text = f"{failure.subject.name} exited with status {failure.exit_code}"
    return Evidence(kind="status", text=text, time=failure.end, replica=_replica(failure))


def make_line_evidence(line: LogLine) -> Evidence:
    """Convert a log line to evidence."""
    return Evidence(kind="log", text=quote_line(line.text), time=line.time_ns // NS_PER_MS, replica=line.replica)


def make_event_evidence(event: Event) -> Evidence:
    """Convert an event to evidence."""
    return Evidence(kind="event", text=_words(event), time=event.time, replica=event.replica)


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    if not patterns:
        return lambda _text: False
    compiled = re.compile("|".join(patterns), re.IGNORECASE)
    # The text is untrusted: an overlong line is not searched to its end.
    return lambda text: compiled.search(strip_rank(text[:4_000])) is not None


def _events(case: Case, failure: FailedReplica) -> list[Event]:
    """Return the events about the end, without Jobmeter's own events about states, findings and alerts."""
    name = _replica(failure)
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


def _replica(failure: FailedReplica) -> str:
    return failure.subject.name if failure.subject.kind == "replica" else ""
