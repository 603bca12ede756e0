"""Diagnoses a job on request: its findings, and one timeline of its events and changes."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.finding_events import add_reported, read_reported_findings
from jobmeter.diagnose.gather import gather
from jobmeter.diagnose.registry import rules
from jobmeter.diagnose.rule import quote_line
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.model.batch import Float64s
from jobmeter.model.catalog import CATALOG
from jobmeter.model.event import FINDING, LEVEL_OF, STACK_EVIDENCE, Event, EventFilter, EventSource, Level
from jobmeter.model.finding import Evidence, Finding
from jobmeter.model.job import JobState
from jobmeter.model.stacks import STACK_RULES
from jobmeter.model.time import MINUTE, NS_PER_MS, Clock
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobRef

_LATER_MS = 2 * MINUTE
"""Longest time from the end of a finding to the collection of its evidence."""


def add_stacks(findings: Sequence[Finding], events: Sequence[Event]) -> list[Finding]:
    """Add to findings of stalled jobs the rank that the others wait for, if it is known.

    The sentence of the newest evidence since the finding began replaces the finding's sentence, which becomes evidence.
    """
    compared = [event for event in events if event.reason == STACK_EVIDENCE]
    return [_explain_finding(one, compared) if one.rule in STACK_RULES else one for one in findings]


def _explain_finding(finding: Finding, events: Sequence[Event]) -> Finding:
    wholes = [one for one in events if not one.replica and finding.start <= one.time <= finding.end + _LATER_MS]
    if not wholes:
        return finding
    newest = wholes[-1]
    named = [one for one in events if one.replica and one.time == newest.time]
    evidence = [
        Evidence(kind="event", text=one.message, time=one.time, replica=one.replica) for one in (newest, *named)
    ]
    if newest.level is not Level.WARNING:
        return replace(finding, evidence=[*finding.evidence, evidence[0]])
    own = Evidence(kind="status", text=finding.sentence, time=finding.start)
    return replace(finding, sentence=newest.message, evidence=[own, *evidence[1:], *finding.evidence])


METRICS = ("cpu.usage", "cpu.utilization", "gpu.utilization", "npu.utilization", "memory.usage", "gpu.memory.usage")
"""The metrics whose levels are compared, of those that rules read."""
WINDOW = 12
"""Points on either side of a change."""
MOST_OF_ONE, MOST = 3, 200
_RELATIVE, _NOISE, _LEAST_SHARE = 0.5, 4.0, 0.02
PEAK_LINES, PEAK_FACTOR = 20, 5
"""Warning lines of a minute that make a peak, and how many times more than in the usual minute there must be."""


class ChangePoint(msgspec.Struct, frozen=True):
    """A change of a metric's level, or a peak of warning lines, at ``time`` (epoch ms)."""

    time: int
    name: str
    text: str
    replica: str = ""
    node: str = ""


def metric_changes(case: Case) -> list[ChangePoint]:
    """Find changes of level: the means of twelve points after and before a moment differ by far.

    Far means by half of the higher mean, by four times the spread on either side, and by a fiftieth of the highest
    value.
    """
    found = [turn for name in METRICS for signal in case.means.get(name, ()) for turn in _changes(signal)]
    return sorted(found, key=lambda turn: turn.time)[:MOST]


def _changes(signal: Signal) -> Iterator[ChangePoint]:
    value = signal.value
    places = len(value) - 2 * WINDOW + 1
    if places < 1:
        return
    before, spread_before = _windows(value[: len(value) - WINDOW])
    after, spread_after = _windows(value[WINDOW:])
    step = np.abs(after - before)
    least = np.maximum(_RELATIVE * np.maximum(np.abs(before), np.abs(after)), _LEAST_SHARE * float(np.abs(value).max()))
    score = np.where(step > np.maximum(least, _NOISE * np.maximum(spread_before, spread_after)), step, 0.0)
    unit = f" {CATALOG[signal.metric].read_unit}".removesuffix(" 1").rstrip()
    for _ in range(MOST_OF_ONE):
        at = int(score.argmax())
        if not score[at]:
            return
        whose = signal.device_name if signal.device else signal.replica
        verb = "rose" if after[at] > before[at] else "fell"
        text = f"{signal.metric} of {whose} {verb} from {before[at]:.4g} to {after[at]:.4g}{unit}"
        yield ChangePoint(int(signal.time[at + WINDOW]), signal.metric, text, signal.replica, signal.node)
        score[max(at - WINDOW, 0) : at + WINDOW] = 0.0


def _windows(value: Float64s) -> tuple[Float64s, Float64s]:
    windows = np.lib.stride_tricks.sliding_window_view(value, WINDOW)
    return windows.mean(axis=1), windows.std(axis=1)


def log_peaks(case: Case) -> list[ChangePoint]:
    """Find minutes with many more warnings and errors of a replica than its median minute with any."""
    counts: dict[str, Counter[int]] = {}
    for line in case.lines:
        if line.level in {Level.WARNING, Level.ERROR}:
            minute = line.time_ns // NS_PER_MS // MINUTE * MINUTE
            counts.setdefault(line.replica, Counter())[minute] += 1
    found = [
        ChangePoint(minute, "warnings", f"{count} lines that warn in a minute", replica)
        for replica, of_minute in counts.items()
        for minute, count in of_minute.items()
        if count >= PEAK_LINES
        and (len(of_minute) == 1 or count >= PEAK_FACTOR * float(np.median(list(of_minute.values()))))
    ]
    return sorted(found, key=lambda turn: turn.time)[:MOST]


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
    case = gather(executor, ref, scope, clock, rules())
    running = case.job.state is JobState.RUNNING
    found = add_reported(
        examine(case, thresholds), read_reported_findings(case.events), case.span.end_ms, running=running
    )
    found = add_stacks(found, case.events)
    found = [replace(one, replicas=one.replicas or case.replicas_of(one.subject, one.start)) for one in found]
    return Diagnosis(case, found)


def events_of_nodes(executor: Executor, case: Case, scope: Scope) -> list[Event]:
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


def timeline(diagnosis: Diagnosis, of_nodes: Sequence[Event] = ()) -> list[Moment]:
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
    kinds = (("peak", Level.WARNING, log_peaks(case)), ("metric", Level.INFO, metric_changes(case)))
    return [
        Moment(time=one.time, kind=kind, level=level, name=one.name, text=one.text, replica=one.replica, node=one.node)
        for kind, level, turns in kinds
        for one in turns
    ]
