"""Findings of running jobs as events: one when a finding opens, one when it closes."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.wording import format_length
from jobmeter.model.event import FINDING, FINDING_ENDED, LEVEL_OF, Event, EventSource
from jobmeter.model.finding import Evidence, Finding, FindingRole, Severity, Subject, rank_severity, read_message
from jobmeter.model.record import EventRecord

_SEVERITIES = {level: severity for severity, level in LEVEL_OF.items()}

Key = tuple[str, Subject]
"""The identity of an open finding: its rule and its subject."""


class ReportedFinding(msgspec.Struct, frozen=True):
    """A finding reported by events. ``ended`` is None while it is open. ``worse`` is the event of its worsening."""

    rule: str
    opened: Event
    ended: Event | None = None
    worse: Event | None = None

    @property
    def key(self) -> Key:
        """See ``Key``."""
        return self.rule, self.opened.object

    @property
    def start(self) -> int:
        """Start of the fault, in epoch ms. The report came later: a rule waits before it reports."""
        read = read_message(self.opened.message, self.opened.subject)
        return self.opened.time if read is None or read.start is None else min(read.start, self.opened.time)

    @property
    def severity(self) -> Severity:
        """Return the highest severity that was reported."""
        return _SEVERITIES.get((self.worse or self.opened).level, Severity.INFO)

    def build_finding(self, until_ms: int) -> Finding:
        """Build the finding from the events; an open one lasts until ``until_ms``."""
        rule = next((one for one in list_rules() if one.name == self.rule), None)
        end = until_ms if self.ended is None else self.ended.time
        parts = [event for event in (self.opened, self.worse, self.ended) if event is not None]
        return Finding(
            rule=self.rule,
            role=FindingRole.ROOT,
            severity=self.severity,
            confidence=0.9,
            subject=self.opened.object,
            start=self.start,
            end=max(end, self.opened.time),
            evidence=[
                Evidence(kind="event", text=_strip_subject(event), time=event.time, replica=event.replica)
                for event in parts
            ],
            advice=rule.advice if rule else "",
            source=rule.source if rule else "",
            sentence=_strip_subject(self.worse or self.opened),
        )


def make_opening(project: str, job: str, one: Finding, time_ms: int) -> EventRecord:
    """Make the event for a finding of a running job that opened."""
    event = _event(project, job, one.subject, time_ms)
    return replace(event, reason=FINDING, message=one.opening_message, level=LEVEL_OF[one.severity])


def make_end_event(project: str, job: str, key: Key, time_ms: int, since_ms: int, *, over: bool = False) -> EventRecord:
    """Make the event for a finding that closed; ``over``: because the job has ended."""
    rule, subject = key
    why = "the job ended with it" if over else "it is found no longer"
    message = (
        f"{rule} ({subject.kind} {subject.name}): {why}, {format_length(max(time_ms - since_ms, 0))} after it "
        "was reported"
    )
    return replace(_event(project, job, subject, time_ms), reason=FINDING_ENDED, message=message)


def _event(project: str, job: str, subject: Subject, time_ms: int) -> EventRecord:
    replica = subject.name if subject.kind == "replica" else ""
    return EventRecord(
        time=time_ms,
        project=project,
        job=job,
        replica=replica,
        source=EventSource.REPLICA if replica else EventSource.JOB,
        subject=f"{subject.kind} {subject.name}",
    )


def read_reported_findings(events: Iterable[Event]) -> list[ReportedFinding]:
    """Read the findings from a job's events (in order of time), in the order in which they opened."""
    found: list[ReportedFinding] = []
    open_at: dict[Key, int] = {}
    for event in events:
        read = read_message(event.message, event.subject)
        # Findings of a finished job have no subject.
        if event.reason not in {FINDING, FINDING_ENDED} or not event.subject or read is None:
            continue
        key = (read.rule, event.object)
        at = open_at.pop(key, None) if event.reason == FINDING_ENDED else open_at.get(key)
        if event.reason == FINDING_ENDED and at is not None:
            found[at] = replace(found[at], ended=event)
        elif event.reason == FINDING and at is None:
            open_at[key] = len(found)
            found.append(ReportedFinding(read.rule, event))
        elif event.reason == FINDING and at is not None:
            found[at] = replace(found[at], worse=event)
    return found


def add_reported(
    found: Sequence[Finding], reported: Sequence[ReportedFinding], until_ms: int, *, running: bool
) -> list[Finding]:
    """Add findings that only events reported, such as a hang that passed, in the order of listings.

    An open finding begins at the time in its report, as in listings. If the job does not run, reported findings without
    an end are left out.
    """
    there = {(one.rule, one.subject) for one in found}
    last = {one.key: one for one in reported if one.ended is not None or running}
    begun = {one.key: one.start for one in reported if one.ended is None and running}
    started = [replace(one, start=min(begun.get((one.rule, one.subject), one.start), one.end)) for one in found]
    every = [*started, *(one.build_finding(until_ms) for key, one in last.items() if key not in there)]

    def order(one: Finding) -> tuple[object, ...]:
        known = last.get((one.rule, one.subject))
        passed = running and known is not None and known.ended is not None
        reported = not running and known is not None
        return rank_severity(one.severity, one.role, passed=passed, reported=reported, start=one.start, rule=one.rule)

    return sorted(every, key=order)


def _strip_subject(event: Event) -> str:
    """Return the message without the rule, the subject and the time."""
    read = read_message(event.message, event.subject)
    return read.sentence if read else event.message
