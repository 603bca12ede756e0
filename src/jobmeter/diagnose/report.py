"""Diagnoses a job on request: its findings, and one timeline of its events and changes."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.change_points import find_metric_changes, log_peaks
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.finding_events import add_reported, read_reported_findings
from jobmeter.diagnose.gather import gather
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import quote_line
from jobmeter.diagnose.stack_findings import add_stacks
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.model.event import FINDING, LEVEL_OF, Event, EventFilter, EventSource, Level
from jobmeter.model.finding import Finding
from jobmeter.model.job import JobState
from jobmeter.model.time import NS_PER_MS, Clock
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobRef

MOST_NODE_EVENTS = 1_000


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a timeline, at ``time`` (epoch ms). ``kind`` is state, event, node, finding, log, peak or metric.

    ``name`` is the new state, the event's reason, the rule, the stream, or the metric. Fields without a meaning are
    empty. An event of kind ``node`` is about a node that the job had then.
    """

    time: int
    kind: str
    level: Level
    name: str
    text: str
    replica: str = ""
    node: str = ""


class Diagnosis(msgspec.Struct, frozen=True, eq=False):
    """A case and its findings."""

    case: Case
    findings: list[Finding]


def diagnose(executor: Executor, ref: JobRef, scope: Scope, clock: Clock, thresholds: Thresholds) -> Diagnosis:
    """Read a job's stored data and run every rule over it. Raises as ``Executor.run`` does.

    Findings reported by events while the job ran are included where no rule finds them any more.
    """
    case = gather(executor, ref, scope, clock, list_rules())
    running = case.job.state is JobState.RUNNING
    found = add_reported(
        examine(case, thresholds), read_reported_findings(case.events), case.span.end_ms, running=running
    )
    found = add_stacks(found, case.events)
    found = [replace(one, replicas=one.replicas or case.list_replicas(one.subject, one.start)) for one in found]
    return Diagnosis(case, found)


def read_node_events(executor: Executor, case: Case, scope: Scope) -> list[Event]:
    """Return the newest thousand events about the job's nodes, while a replica of the job was on them.

    Empty for a caller that may only see the job.
    """
    stays: dict[str, list[tuple[int, int]]] = {}
    for replica in case.view.replicas:
        if replica.node:
            start = case.span.start_ms if replica.start is None else replica.start
            stays.setdefault(replica.node, []).append((start, case.span.end_ms if replica.end is None else replica.end))
    if not stays or scope.job is not None or scope.grant is not None:
        return []
    question = EventFilter(
        projects=frozenset({case.job.project}),
        nodes=frozenset(stays),
        start=case.span.start_ms,
        end=case.span.end_ms + 1,
        descending=True,
        limit=MOST_NODE_EVENTS,
    )
    found = executor.run(question, scope).events
    return [
        event
        for event in reversed(found)
        if not event.job and any(start <= event.time <= end for start, end in stays[event.node])
    ]


def build_timeline(diagnosis: Diagnosis, of_nodes: Sequence[Event] = ()) -> list[Moment]:
    """Return state changes, events, beginnings of findings, warnings and their peaks, and changes of metrics.

    In order of time; ``of_nodes`` are events of the job's nodes.
    """
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
            time=line.time_ns // NS_PER_MS,
            kind="log",
            level=line.level,
            name=line.stream,
            text=quote_line(line.text),
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
            level=LEVEL_OF[one.severity],
            name=one.rule,
            text=one.sentence,
            replica=one.subject.name if one.subject.kind == "replica" else "",
        )
        for one in diagnosis.findings
    ]
    moments += [*_list_node_moments(of_nodes), *_change_points(case)]
    return sorted(moments, key=lambda moment: moment.time)


def _list_node_moments(events: Sequence[Event]) -> list[Moment]:
    return [
        Moment(time=event.time, kind="node", level=event.level, name=event.reason, text=event.message, node=event.node)
        for event in events
    ]


def _change_points(case: Case) -> list[Moment]:
    """Return peaks of warnings, and changes of metrics."""
    kinds = (("peak", Level.WARNING, log_peaks(case)), ("metric", Level.INFO, find_metric_changes(case)))
    return [
        Moment(time=one.time, kind=kind, level=level, name=one.name, text=one.text, replica=one.replica, node=one.node)
        for kind, level, found in kinds
        for one in found
    ]
