"""Diagnoses a job on request: its findings, and everything that happened to it on one timeline."""

from dataclasses import dataclass

import msgspec

from jobmeter.access.scope import Scope
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.causes import FINDING
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.gather import gather
from jobmeter.diagnose.rule import quoted, rules
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.model.event import EventSource, Level
from jobmeter.model.finding import Finding, Severity
from jobmeter.model.time import Clock
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobRef

_NS = 1_000_000
LEVELS = {Severity.INFO: Level.INFO, Severity.WARNING: Level.WARNING, Severity.CRITICAL: Level.ERROR}
"""The level of an event or a moment that tells of a finding."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing on a job's timeline, at ``time`` (epoch ms). ``kind`` is state, event, finding or log.

    ``name`` is the new state, the event's reason, the rule, or the stream; names that do not apply are empty.
    """

    time: int
    kind: str
    level: Level
    name: str
    text: str
    replica: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """A case and what the rules found in it."""

    case: Case
    findings: list[Finding]


def diagnose(executor: Executor, ref: JobRef, scope: Scope, clock: Clock, thresholds: Thresholds) -> Diagnosis:
    """Read what is stored of a job and let every rule look at it. Raises as ``Executor.run`` does."""
    case = gather(executor, ref, scope, clock, rules())
    return Diagnosis(case, examine(case, thresholds))


def timeline(diagnosis: Diagnosis) -> list[Moment]:
    """State changes, events, findings (where they begin) and lines that warn, in order of time."""
    case = diagnosis.case
    moments = [
        Moment(
            time=event.time,
            kind="state" if event.source is EventSource.STATE else "event",
            level=event.level,
            name=event.reason,
            text=event.message or event.reason,
            replica=event.replica,
            node=event.node,
        )
        for event in case.events
        if event.reason != FINDING
    ]
    moments += [
        Moment(
            time=line.time_ns // _NS,
            kind="log",
            level=line.level,
            name=line.stream,
            text=quoted(line.text),
            replica=line.replica,
            node=line.node,
        )
        for line in case.lines
        if line.level in {Level.WARNING, Level.ERROR}
    ]
    moments += [
        Moment(
            time=one.start,
            kind="finding",
            level=LEVELS[one.severity],
            name=one.rule,
            text=one.sentence,
            replica=one.subject.name if one.subject.kind == "replica" else "",
        )
        for one in diagnosis.findings
    ]
    return sorted(moments, key=lambda moment: moment.time)
