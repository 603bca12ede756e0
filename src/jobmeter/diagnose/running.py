"""Evaluates rules over the last part of running jobs, and tracks which of their findings open, stay and close.

Samples are read with one query for each job, or several for a very large one. Events and nodes are read for many jobs
together. Log lines are read for a job in which a replica failed lately, and at intervals for every job.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case, Signals, find_used_mounts
from jobmeter.diagnose.devices import PREFIXES
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.failures import has_failed
from jobmeter.diagnose.gather import list_names, read_job_signals, step_of
from jobmeter.diagnose.nodes import find_reported_places, list_nodes, read_addresses, read_node_signals, select_faults
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Numbers, Thresholds
from jobmeter.errors import JobmeterError
from jobmeter.model.event import STACK_EVIDENCE, Event, EventFilter, EventType
from jobmeter.model.finding import Finding, Subject
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobState, JobView
from jobmeter.model.log import LogLine
from jobmeter.model.time import DAY, MAX_TIME_MS, MINUTE, NS_PER_MS, SECOND, TimeRange
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobRef, JobViewsQuestion, LogQuestion

STEPS, NODE_STEPS, _POINTS = 180, 60, 200_000
MOST_EVENTS, MOST_LINES = 1_000, 1_000
_LINES = 50
"""Lines that each read before a silence returns."""
RUNNING = "running"
"""Table of thresholds for running jobs: the evaluated range, and how long findings stay open."""
_KINDS = frozenset({EventType.OOM, EventType.DEVICE_FAULT})
_EDGE_MS = 2 * MINUTE
"""A finding that begins within this time of the start of the range may have begun before the range."""
_FARTHER, _LONGEST_MS = 4, DAY
"""Factor by which each try reads farther back, and the longest time that is read."""

JobKey = tuple[str, str]
"""(project, id) of a job."""


class RunningEvaluation(msgspec.Struct, frozen=True):
    """The findings of a job. ``found`` is None if the reads failed; ``error`` is the reason.

    ``suspected`` is the time (epoch ms) since which the job may have a fault that the stacks of its ranks would show.
    """

    job: JobKey
    view: JobView | None = None
    found: list[Finding] | None = None
    error: JobmeterError | None = None
    suspected: int | None = None


class _SharedReads(msgspec.Struct, frozen=True):
    """Data read for many jobs together: events of jobs, faults of devices by node, series of nodes."""

    events: Mapping[JobKey, list[Event]]
    faults: Mapping[tuple[str, str], list[Event]]
    nodes: Mapping[tuple[str, str], list[Signal]]


def evaluate_running(
    executor: Executor,
    scope: Scope,
    jobs: Mapping[JobKey, frozenset[str]],
    now_ms: int,
    thresholds: Thresholds,
    with_lines: Collection[JobKey] = (),
) -> Iterator[RunningEvaluation]:
    """Evaluate some jobs, each with its open rules; jobs that no longer run are left out.

    The newest lines of the jobs ``with_lines`` are read, to find silence. A job whose evaluation fails does not affect
    the others. Raises as ``Executor.run`` does if the shared reads fail.
    """
    which = [rule for rule in list_rules() if rule.running]
    listed = executor.run(JobViewsQuestion(tuple(jobs), TimeRange(0, MAX_TIME_MS)), scope)
    running = {(one.job.project, one.job.id): one for one in listed if one.job.state is JobState.RUNNING}
    views = {key: running[key] for key in jobs if key in running}
    since = now_ms - int(thresholds[RUNNING]["window"])
    together = _read_together(executor, scope, list(views.values()), which, TimeRange(since, now_ms + 1))
    for key, view in views.items():
        try:
            case = _case(executor, scope, view, which, together, since, now_ms)
            full = thresholds["fs_full"]["info"]
            mounts = find_used_mounts(executor, scope, view, case.nodes, case.span, full)
            silence = thresholds["hang_log"]
            lines = _lines_before_silence(executor, scope, view, silence, now_ms) if key in with_lines else ()
            every = {line.order: line for line in (*case.lines, *lines)}
            in_order = [every[order] for order in sorted(every)]
            case = replace(case, open_rules=jobs[key], mounts=mounts, lines=in_order)
            suspected = _find_suspicion(case, thresholds, which)
            if suspected is not None:
                case = replace(case, events=[*case.events, *_stack_events(executor, scope, view, suspected)])
            found = examine(case, thresholds, which)

            def look_back(start_ms: int, some: Sequence[Rule], view: JobView = view) -> list[Finding]:
                earlier = _case(executor, scope, view, some, together, start_ms, now_ms)
                return examine(earlier, thresholds, some)

            yield RunningEvaluation(key, view, _date_from_beginning(case, found, which, look_back), suspected=suspected)
        except JobmeterError as error:
            yield RunningEvaluation(key, view, None, error)


def _find_suspicion(case: Case, thresholds: Thresholds, which: Sequence[Rule]) -> int | None:
    """Return the time since which a rule suspects a fault that stacks would show; None without any."""
    since = (rule.suspects(case, thresholds[rule.thresholds]) for rule in which if rule.suspects is not None)
    return min((one for one in since if one is not None), default=None)


def _stack_events(executor: Executor, scope: Scope, view: JobView, since: int) -> Iterable[Event]:
    """Return the events of comparisons of the job's stacks since a time."""
    wanted = EventFilter(
        projects=frozenset({view.job.project}), start=since, contains=STACK_EVIDENCE, descending=True, limit=MOST_EVENTS
    )
    return _events(executor, scope, wanted, jobs=(view.job.id,))


def _date_from_beginning(
    case: Case, found: list[Finding], which: Sequence[Rule], look_back: Callable[[int, Sequence[Rule]], list[Finding]]
) -> list[Finding]:
    """Give findings that will open the start of their fault, which may lie before the window.

    ``look_back`` evaluates some rules from an earlier time on. It runs only for a finding that fills the window from
    its start, once when the finding opens.
    """
    began, window = case.began_ms or case.span.start_ms, case.span.length_ms
    pending = {
        (one.rule, one.subject): one
        for one in found
        if one.rule not in case.open_rules and one.start <= case.span.start_ms + _EDGE_MS and one.start < one.end
    }
    earlier: dict[tuple[str, Subject], Finding] = {}
    start = case.span.start_ms
    while pending and start > max(began, case.span.end_ms - _LONGEST_MS):
        window *= _FARTHER
        start = max(case.span.end_ms - window, began)
        names = {rule for rule, _ in pending}
        for one in look_back(start, [rule for rule in which if rule.name in names]):
            now = pending.get((one.rule, one.subject))
            if now is not None and one.start < now.start <= one.end:
                earlier[one.rule, one.subject] = one
        pending = {key: one for key, one in earlier.items() if key in pending and one.start <= start + _EDGE_MS}
    return [earlier.get((one.rule, one.subject), one) for one in found]


def _read_together(
    executor: Executor, scope: Scope, views: Sequence[JobView], which: Sequence[Rule], span: TimeRange
) -> _SharedReads:
    if not views:
        return _SharedReads({}, {}, {})
    places = list(dict.fromkeys(place for view in views for place in list_nodes(view)))
    wanted = EventFilter(
        projects=frozenset(view.job.project for view in views),
        types=_KINDS,
        start=span.start_ms,
        descending=True,
        limit=MOST_EVENTS,
    )
    of_jobs = _events(executor, scope, wanted, jobs=tuple(sorted({view.job.id for view in views})))
    names = frozenset(node for _, node in places)
    of_nodes = _events(executor, scope, wanted, nodes=names) if names else ()
    metrics = list_names(which, lambda rule: rule.nodes)
    step_ms = choose_step(span, NODE_STEPS)
    signals = read_node_signals(executor, scope, places, metrics, span, step_ms) if places else ()
    return _SharedReads(
        events=group_pairs(((event.project, event.job), event) for event in of_jobs),
        faults=group_pairs(((event.project, event.node), event) for event in of_nodes if not event.job),
        nodes=group_pairs(((series.project, series.node), signal) for series, signal in signals),
    )


def _events(executor: Executor, scope: Scope, wanted: EventFilter, **of: object) -> Iterable[Event]:
    return reversed(executor.run(replace(wanted, **of), scope).events)


def _case(
    executor: Executor,
    scope: Scope,
    view: JobView,
    which: Sequence[Rule],
    together: _SharedReads,
    since: int,
    now_ms: int,
) -> Case:
    whole = compute_life(view.job, now_ms)
    span = TimeRange(min(max(whole.start_ms, since), whole.end_ms), whole.end_ms)
    counters = list_names(which, lambda rule: rule.counters)
    names = _select_device_metrics(view, sorted({*list_names(which, lambda rule: rule.metrics), *counters}))
    step_ms = step_of(view, span, len(names), STEPS, _POINTS)
    means = read_job_signals(executor, scope, view, names, span, step_ms)
    key = (view.job.project, view.job.id)
    faults = _faults(view, together)
    return Case(
        view=view,
        span=span,
        now_ms=now_ms,
        step_ms=step_ms,
        means=means,
        increases={name: [_increases(one, step_ms) for one in means.get(name, ())] for name in counters},
        nodes=_select_node_signals(view, together),
        events=together.events.get(key, ()),
        faults=faults,
        addresses=read_addresses(executor, scope, find_reported_places((), faults)),
        lines=_read_last_lines(executor, scope, view, since),
        began_ms=whole.start_ms,
    )


def _select_device_metrics(view: JobView, names: Sequence[str]) -> list[str]:
    """Leave out metrics of other kinds of devices than the job's, if its devices are known."""
    kinds = {one.device.rstrip("0123456789") for one in view.allocations}
    others = tuple(f"{kind}." for kind in PREFIXES if kind not in kinds) if kinds & set(PREFIXES) else ()
    return [name for name in names if not name.startswith(others)]


def _increases(rate: Signal, step_ms: int) -> Signal:
    """Return the growth of a counter, its rate times the time between points; whole for errors and kills."""
    interval = max(rate.interval, step_ms)
    passed = np.diff(rate.time, prepend=rate.time[:1] - interval) / SECOND
    return replace(rate, value=np.where(rate.value > 0, np.maximum(np.round(rate.value * passed), 1.0), 0.0))


def _select_node_signals(view: JobView, together: _SharedReads) -> Signals:
    places = ((view.job.project, node) for _, node in list_nodes(view))
    return group_pairs((signal.metric, signal) for place in places for signal in together.nodes.get(place, ()))


def _faults(view: JobView, together: _SharedReads) -> list[Event]:
    """Return faults of devices of the job's nodes, while the job had devices there."""
    nodes = dict.fromkeys(one.node for one in view.allocations)
    found = [event for node in nodes for event in together.faults.get((view.job.project, node), ())]
    return select_faults(view, found)


def _lines_before_silence(
    executor: Executor, scope: Scope, view: JobView, numbers: Numbers, now_ms: int
) -> Sequence[LogLine]:
    """Return the newest lines of a silent job, and some from before; empty for a job that writes."""
    question = LogQuestion(ref=JobRef(view.job.id, view.job.project), descending=True, limit=_LINES)
    lines = list(executor.run(question, scope).lines)
    if not lines or now_ms - lines[0].time_ns // NS_PER_MS < numbers["suspect"]:
        return ()
    for back in (numbers["regular"] / 2, numbers["regular"]):
        end = lines[0].time_ns - int(back) * NS_PER_MS
        lines += executor.run(replace(question, end_ns=end), scope).lines
    return lines


def _read_last_lines(executor: Executor, scope: Scope, view: JobView, since: int) -> Sequence[LogLine]:
    """Return the last lines of replicas that failed lately while the job continues; empty without any."""
    names = frozenset(
        replica.name
        for replica in view.replicas
        if has_failed(replica) and (replica.end is None or replica.end >= since)
    )
    if not names:
        return ()
    question = LogQuestion(
        ref=JobRef(view.job.id, view.job.project),
        replicas=names,
        start_ns=since * NS_PER_MS,
        descending=True,
        limit=MOST_LINES,
    )
    return sorted(executor.run(question, scope).lines, key=lambda line: line.order)
