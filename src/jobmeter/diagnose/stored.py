"""Evaluates rules over stored data of nodes in a range, and over log lines in a task."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.gather import convert_lines
from jobmeter.diagnose.kernel import read_task_lines
from jobmeter.diagnose.nodes import find_reported_places, read_addresses, read_signals_of_nodes
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import Weight
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.errors import NotFoundError
from jobmeter.model.catalog import CATALOG, MetricScope
from jobmeter.model.event import Event, EventFilter, EventType, Level
from jobmeter.model.finding import Finding, FindingRole, Subject
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.log import LogLine
from jobmeter.model.task import DiagnosticTask
from jobmeter.model.time import TimeRange
from jobmeter.query.defaults import choose_step
from jobmeter.query.execute import Executor
from jobmeter.query.request import By, MetricQuery, NodeRef, Statistic
from jobmeter.query.sampled import SampledQuestion

STEPS = 360
MOST_EVENTS = 200
"""Events of a task's nodes in its result: the newest of level warning or worse."""
_NODE_RULES = frozenset(
    {"d_state", "fs_full", "thermal", "throttle_power", "ecc_uncorrected", "ecc_corrected_storm", "remap_failure",
     "remap_pending", "gpu_missing", "gpu_leftover_memory", "pcie_degraded", "xid", "host_oom_kill", "link_flap",
     "fs_error"}
)  # fmt: skip
"""The rules that need no job."""
_LOG_RULES = frozenset({"xid", "host_oom_kill"})
_MS = 1_000_000


class StoredEvaluation(msgspec.Struct, frozen=True):
    """The findings, the warning events, and sentences about data that could not be read."""

    findings: list[Finding]
    events: list[Event]
    failures: list[str]


def evaluate_nodes(executor: Executor, task: DiagnosticTask, now_ms: int, thresholds: Thresholds) -> StoredEvaluation:
    """Evaluate the rules about nodes over samples, events and kernel log lines of the range.

    Raises as ``Executor.run`` does. Nodes with too many lines to search are only named in ``failures``.
    """
    scope, span = Scope(frozenset({task.project})), TimeRange(task.start, task.end)
    which = [rule for rule in list_rules() if rule.name in _NODE_RULES]
    step_ms = choose_step(span, STEPS)
    view = _view(task, [Replica(name=node, node=node, cluster=task.cluster) for node in task.nodes], JobState.RUNNING)
    events = read_node_events(executor, scope, task, span)
    names = sorted({name for rule in which for name in rule.nodes})
    refs = [NodeRef(node, task.cluster or None, task.project) for node in task.nodes]
    lines, failures = read_task_lines(executor, scope, refs, span, which)
    case = Case(
        view=view,
        span=span,
        now_ms=now_ms,
        step_ms=step_ms,
        addresses=read_addresses(executor, scope, find_reported_places(lines, events)),
        means=_devices(executor, scope, task, _select_device_metrics(rule.metrics for rule in which), Statistic.MEAN),
        increases=_devices(
            executor, scope, task, _select_device_metrics(rule.counters for rule in which), Statistic.INCREASE
        ),
        nodes=read_signals_of_nodes(executor, scope, view, names, span, step_ms),
        events=[replace(event, replica=event.node) for event in events],
        kernel=[replace(line, replica=line.node) for line in lines],
    )
    findings = [_move_to_node(one, frozenset(task.nodes)) for one in examine(case, thresholds, which)]
    return StoredEvaluation(findings, events, failures)


def _select_device_metrics(names: Iterable[Sequence[str]]) -> list[str]:
    return [name for some in names for name in some if CATALOG[name].scope is MetricScope.DEVICE]


def _move_to_node(finding: Finding, nodes: frozenset[str]) -> Finding:
    """Move a finding from a replica to its node, without a role: nodes have no consequences."""
    if finding.subject.kind != "replica" or finding.subject.name not in nodes:
        return finding
    return replace(finding, subject=Subject("node", finding.subject.name), role=FindingRole.ROOT)


def read_node_events(executor: Executor, scope: Scope, task: DiagnosticTask, span: TimeRange) -> list[Event]:
    """Return the newest warnings and errors among the nodes' events in a range, in order of time."""
    question = EventFilter(
        projects=frozenset({task.project}),
        nodes=frozenset(task.nodes),
        clusters=frozenset({task.cluster} if task.cluster else ()),
        levels=frozenset({Level.WARNING, Level.ERROR}),
        without=frozenset({EventType.FINDING, EventType.ALERT}),
        start=span.start_ms,
        end=span.end_ms,
        descending=True,
        limit=MOST_EVENTS,
    )
    return list(reversed(executor.run(question, scope).events))


def evaluate_lines(task: DiagnosticTask, now_ms: int, thresholds: Thresholds) -> list[Finding]:
    """Evaluate the rules about logs over the lines of the task: each instance counts as a failed replica."""
    which = [rule for rule in list_rules() if rule.name in _LOG_RULES or rule.cause not in {None, Weight.FALLBACK}]
    replicas, lines = [], []
    for at, log in enumerate(task.logs):
        name = log.instance or log.node or f"log-{at}"
        replicas.append(Replica(name=name, node=log.node, state=JobState.FAILED, start=task.start, end=task.end))
        lines += _lines(task, name, log.node, log.lines)
    span = TimeRange(task.start, task.end)
    lines.sort(key=lambda line: line.order)
    view = _view(task, replicas, JobState.FAILED)
    case = Case(view=view, span=span, now_ms=now_ms, step_ms=choose_step(span, STEPS), lines=lines)
    return [one for one in examine(case, thresholds, which) if any(part.kind != "status" for part in one.evidence)]


def _lines(task: DiagnosticTask, replica: str, node: str, texts: Sequence[str]) -> list[LogLine]:
    """Give lines without exact times the last moments of the range, in their order."""
    first = (task.end - len(texts)) * _MS
    return [
        LogLine(time_ns=first + at * _MS, text=text, job=task.id, replica=replica, node=node, project=task.project)
        for at, text in enumerate(texts)
    ]


def _view(task: DiagnosticTask, replicas: list[Replica], state: JobState) -> JobView:
    ended = task.end if state.finished else None
    job = Job(id=task.id, project=task.project, state=state, start=task.start, end=ended, recorded=True)
    return JobView(job=job, replicas=replicas, allocations=[])


def _devices(
    executor: Executor, scope: Scope, task: DiagnosticTask, names: Sequence[str], statistic: Statistic
) -> dict[str, list[Signal]]:
    found: dict[str, list[Signal]] = {}
    span = TimeRange(task.start, task.end)
    for node in task.nodes if names else ():
        query = MetricQuery(
            subject=NodeRef(node, task.cluster or None, task.project),
            metrics=tuple(sorted(set(names))),
            range=span,
            step_ms=choose_step(span, STEPS),
            by=By.DEVICE,
            statistic=statistic,
        )
        try:
            lines = executor.run(SampledQuestion(query), scope)
        except NotFoundError:  # the node was deleted meanwhile
            continue
        for signal in convert_lines(lines):
            found.setdefault(signal.metric, []).append(signal)
    return found
