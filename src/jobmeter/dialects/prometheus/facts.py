"""Metrics made of facts: jobs with their states and findings, nodes and their agents, the server's disk.

Each has the value of a fact while the fact holds, and a stale marker at its end. ``JOB_METRICS`` answer callers who may
list jobs, ``NODE_METRICS`` callers who may list nodes, ``DISK_FREE`` administrators; nobody else gets a series. A
selector must name such a metric: a pattern of names finds only stored series.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np

from jobmeter.diagnose.finding_events import ReportedFinding, read_reported_findings
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import Rule, Weight
from jobmeter.dialects.base import ask
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.event import Event, EventType
from jobmeter.model.finding import FindingRole, Severity, read_message
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Question
from jobmeter.model.special import STALE
from jobmeter.model.time import MINUTE, SECOND
from jobmeter.promql.labels import Labels, make_labels
from jobmeter.promql.nodes import NAME
from jobmeter.query.facts import (
    KEEP_MS,
    DiskFacts,
    DiskQuestion,
    JobFacts,
    JobFactsQuestion,
    NodeFacts,
    NodeFactsQuestion,
    is_final,
)
from jobmeter.query.nodes import NodeState

JOB_INFO, JOB_STATE, FINDING = "jobmeter_job_info", "jobmeter_job_state", "jobmeter_finding"
NODE_UP, AGENT_SILENT, AGENT_INTERVAL = (
    "jobmeter_node_up",
    "jobmeter_agent_silent_seconds",
    "jobmeter_agent_interval_seconds",
)
DISK_FREE = "jobmeter_server_disk_free_ratio"
STEP_MS = 15 * SECOND
"""Interval of the samples of a fact."""
MOST_SAMPLES = 5_000_000
_MOST_TEXT = 300
"""Most characters of a label that holds a sentence."""
_STALE = np.array([STALE], np.int64).view(np.float64)[0]


class FactSpan(msgspec.Struct, frozen=True):
    """A fact that holds from ``begin`` up to ``end`` (epoch ms), with its value."""

    begin: int
    end: int
    value: float = 1.0


Spans = dict[Labels, list[FactSpan]]


def find_facts(
    name: str, since_ms: int, projects: frozenset[str] | None, ids: tuple[str, ...]
) -> Generator[Question[Any], Any, Spans]:
    """Find the series of a metric of ``FACTS`` that have a value at ``since_ms`` or later."""
    found: Spans = {}
    if name in NODE_METRICS:
        nodes = yield from ask(NodeFactsQuestion(since_ms=since_ms, projects=projects))
        pairs = NODE_METRICS[name](nodes)
    elif name == DISK_FREE:
        disk = yield from ask(DiskQuestion())
        pairs = _disk_free(disk)
    else:
        question = JobFactsQuestion(since_ms=since_ms, projects=projects, ids=ids, findings=name != JOB_INFO)
        jobs = yield from ask(question)
        pairs = JOB_METRICS[name](jobs)
    for labels, span in pairs:
        if span.end > max(span.begin, since_ms):
            found.setdefault(make_labels([(NAME, name), *labels.items()]), []).append(span)
    return found


Pairs = Iterator[tuple[Mapping[str, str], FactSpan]]


def _job_info(facts: JobFacts) -> Pairs:
    for job in facts.jobs:
        labels = {"name": job.name, "type": job.type, "user": job.user}
        labels |= {"resource_group": job.resource_group, "workspace": job.workspace}
        yield labels | _identity(job), FactSpan(_begin(job), _find_visible_end(job, facts.now_ms))


def _job_state(facts: JobFacts) -> Pairs:
    """Yield the states of jobs. A failed job has the rule of its root cause as ``cause`` once the rule is known."""
    events = _group_by_job(facts.events)
    for job in facts.jobs:
        begin, until = _begin(job), _find_visible_end(job, facts.now_ms)
        end = until if not job.state.finished else min(_end(job), until)
        ran = job.start if job.start is not None else begin
        starts = min(max(ran, begin), end) if job.state is not JobState.QUEUED else end
        yield _identity(job) | {"state": JobState.QUEUED.value}, FactSpan(begin, starts)
        yield _identity(job) | {"state": JobState.RUNNING.value}, FactSpan(starts, end)
        if job.state.finished:
            labels = {"state": job.state.value, "error": job.error[:_MOST_TEXT]}
            known = _cause(events.get((job.project, job.id), []))
            labels["cause"] = known if job.state is JobState.FAILED else ""
            yield _identity(job) | labels, FactSpan(end, until)


def _finding(facts: JobFacts) -> Pairs:
    events = _group_by_job(facts.events)
    for job in facts.jobs:
        own = events.get((job.project, job.id), [])
        open_until = min(_end(job), facts.now_ms + 1) if job.state.finished else facts.now_ms + 1
        reported = read_reported_findings(own)
        finals = [(event, read.rule) for event in own if is_final(event) and (read := read_message(event.message))]
        names = [one.rule for one in reported] + [rule for _, rule in finals]
        for one in reported:
            end = open_until if one.ended is None else min(one.ended.time, open_until)
            yield _identity(job) | _label_event(one.opened, one.rule, one, names), FactSpan(one.opened.time, end)
        for event, rule in finals:
            begin = max(event.time, _end(job)) if job.state.finished else event.time
            yield (
                _identity(job) | _label_event(event, rule, None, names),
                FactSpan(begin, _find_visible_end(job, facts.now_ms)),
            )


def _label_event(event: Event, rule: str, reported: ReportedFinding | None, names: Sequence[str]) -> dict[str, str]:
    read = read_message(event.message, event.subject)
    severity = {"error": Severity.CRITICAL, "warning": Severity.WARNING}.get(event.level.value, Severity.INFO)
    return {
        "rule": rule,
        "severity": (severity if reported is None else reported.severity).value,
        "role": choose_role(rule, names).value,
        "subject": read.subject if read else event.subject,
        "sentence": (read.sentence if read else event.message)[:_MOST_TEXT],
    }


@cache
def _rules() -> Mapping[str, Rule]:
    return {rule.name: rule for rule in list_rules()}


def choose_role(rule: str, names: Iterable[str]) -> FindingRole:
    """Return the role of a finding among all findings of its job, by the kinds of their rules.

    A rule about waiting ranks reports a consequence if another rule reports a cause of the end, or a fault that
    explains the end.
    """
    own = _rules().get(rule)
    if own is None or not (own.waits or own.cause is Weight.CONSEQUENCE):
        return FindingRole.ROOT
    others = [_rules()[name] for name in names if name in _rules() and name != rule]
    explained = any(one.explains or (one.cause is not None and one.cause < Weight.CONSEQUENCE) for one in others)
    return FindingRole.CASCADE if explained else FindingRole.ROOT


def _cause(events: Sequence[Event]) -> str:
    """Return the rule with the most specific cause of the end among the findings; an empty text if none is known."""
    names = [read.rule for event in events if is_final(event) and (read := read_message(event.message))]
    causes = [one for name in names if (one := _rules().get(name)) is not None and one.cause is not None]
    return min(causes, key=lambda one: one.cause or Weight.SPECIFIC).name if causes else ""


def _node_up(facts: NodeFacts) -> Pairs:
    """Yield the spans in which each node was up (1) or down (0); its state before its first event was the opposite."""
    events = group_pairs(((event.cluster, event.node), event) for event in facts.events)
    for status in facts.nodes:
        node = status.node
        if status.state is NodeState.UNKNOWN:
            continue
        end, up = facts.now_ms + 1, status.state is NodeState.UP
        for event in reversed(events.get((node.cluster, node.name), [])):
            is_up = event.type is EventType.NODE_UP
            if is_up is up:
                yield _place(node.name, node.cluster, node.project), FactSpan(event.time, end, float(up))
                end, up = event.time, not is_up
        begin = node.first_seen if node.first_seen is not None else end - MINUTE
        yield _place(node.name, node.cluster, node.project), FactSpan(begin, end, float(up))


def _agent_silent(facts: NodeFacts) -> Pairs:
    for status in facts.nodes:
        node = status.node
        if node.last_seen is not None and status.state is not NodeState.UNKNOWN:
            seconds = max(facts.now_ms - node.last_seen, 0) / SECOND
            yield _place(node.name, node.cluster, node.project), _make_present_fact(facts.now_ms, seconds)


def _agent_interval(facts: NodeFacts) -> Pairs:
    for status in facts.nodes:
        node, interval = status.node, status.node.info.get("interval_ms")
        if isinstance(interval, int) and interval > 0:
            place = _place(node.name, node.cluster, node.project)
            yield place, _make_present_fact(facts.now_ms, interval / SECOND)


def _disk_free(facts: DiskFacts) -> Pairs:
    if facts.size:
        yield {}, _make_present_fact(facts.now_ms, facts.free / facts.size)


def _make_present_fact(now_ms: int, value: float) -> FactSpan:
    """Return a fact that holds only now; its span allows a query that is slightly older than its answer."""
    return FactSpan(now_ms - STEP_MS, now_ms + 1, value)


def _place(node: str, cluster: str, project: str) -> dict[str, str]:
    return {"node": node, "cluster": cluster, "project": project}


def _identity(job: Job) -> dict[str, str]:
    return {"job_id": job.id, "project": job.project}


def _begin(job: Job) -> int:
    times = (job.created, job.start, job.first_sample, job.end, job.updated)
    return next((one for one in times if one is not None), 0)


def _end(job: Job) -> int:
    ended = job.end if job.end is not None else job.last_sample
    return _begin(job) if ended is None else ended


def _find_visible_end(job: Job, now_ms: int) -> int:
    return min(_end(job) + KEEP_MS, now_ms + 1) if job.state.finished else now_ms + 1


def _group_by_job(events: Iterable[Event]) -> dict[tuple[str, str], list[Event]]:
    return group_pairs(((event.project, event.job), event) for event in events)


JOB_METRICS: Mapping[str, Callable[[JobFacts], Pairs]] = {
    JOB_INFO: _job_info,
    JOB_STATE: _job_state,
    FINDING: _finding,
}
NODE_METRICS: Mapping[str, Callable[[NodeFacts], Pairs]] = {
    NODE_UP: _node_up,
    AGENT_SILENT: _agent_silent,
    AGENT_INTERVAL: _agent_interval,
}
FACTS: Mapping[str, str] = {
    JOB_INFO: "1 for each job that has not ended, or ended less than an hour ago, with its name, type, user and group.",
    JOB_STATE: "1 for the state of each job; a failed one has its root cause as cause.",
    FINDING: "1 for each open finding, and for the findings of a job in the hour after its end.",
    NODE_UP: "1 for a node whose agent reports, 0 for a silent node.",
    AGENT_SILENT: "Seconds since the last report of a node's agent, now.",
    DISK_FREE: "Share of the disk of the server's data folder that is free, now.",
    AGENT_INTERVAL: "Seconds between two measurements of the agent of a node, now.",
}
"""Every metric of facts, with its meaning."""


def make_samples(spans: Sequence[FactSpan], start_ms: int, end_ms: int, room: int) -> tuple[Int64s, Float64s]:
    """Return the samples of one series in ``(start_ms, end_ms]``. Raises LimitExceededError beyond ``room`` samples."""
    times: dict[int, float] = {}
    for span in sorted(spans, key=lambda one: one.begin):
        if span.end <= start_ms or span.begin > end_ms:
            continue
        first = max(span.begin, start_ms + 1)
        last = min(span.end - 1, end_ms)
        grid = range(-(-first // STEP_MS) * STEP_MS, last + 1, STEP_MS)
        if len(times) + len(grid) > room:
            raise LimitExceededError(f"the query reads more than {MOST_SAMPLES} samples: narrow its range", "query")
        times |= dict.fromkeys([*([span.begin] if span.begin > start_ms else []), *grid], span.value)
        if span.end <= end_ms:
            times[span.end] = _STALE
    order = sorted(times)
    return np.array(order, np.int64), np.array([times[one] for one in order], np.float64)
