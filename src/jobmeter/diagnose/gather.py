"""Reads the input of the rules for a job, in a few queries for all rules, and the kernel lines that they search."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case, Signals, find_used_mounts
from jobmeter.diagnose.nodes import MOST_NODES, addresses_of, faults_of, find_reported_places, signals_of_nodes
from jobmeter.diagnose.registry import rules
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.signal import Signal
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.catalog import CATALOG, MetricScope, add_derived
from jobmeter.model.event import Event, EventFilter, EventType, Level
from jobmeter.model.job import JobView
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.log_tree import LogQuery, Property, matches
from jobmeter.model.time import NS_PER_MS, Clock, TimeRange
from jobmeter.query.defaults import default_step, life
from jobmeter.query.execute import Executor
from jobmeter.query.request import (
    By,
    JobQuestion,
    JobRef,
    LogQuestion,
    MeasuredNamesQuestion,
    MetricQuery,
    NodeRef,
    Statistic,
)
from jobmeter.query.sampled import SampledLine, SampledQuestion

MOST_LINES = 200
"""Most lines of one node that are read from the start; of further lines, this many from the end."""
QUIET = 50
"""Lines of the kernel of a quiet node over a job's life, at most."""
MOST_TASK_LINES, LEAST_LINES = 8_000, 8
"""Most lines of all nodes of a task; also the least number of lines of one node that a rule reads."""
SIGKILLED = 128 + 9
"""Exit status of a replica that SIGKILL ended."""
_KILL_MS = 30_000
"""Most time between a line of the kernel about a kill and the recorded end of the killed replica."""
MOST_FAULTS = 200
"""Faults of devices that are read, the last ones: those that may have ended the job are among them."""
_KERNEL = Property("facility", ("kern",))


def kernel_lines(executor: Executor, scope: Scope, view: JobView, span: TimeRange) -> Sequence[LogLine]:
    """Read kernel log lines in order of time; empty for a caller that may only see the job.

    Lines for rules about nodes are always included. Faults of devices are included if the job had a device on that
    node, and kills if the process belonged to the job. So a neighbour's fault is not reported for this job.
    """
    if scope.job is not None:
        return ()
    nodes = list(dict.fromkeys(replica.node for replica in view.replicas if replica.node))[:MOST_NODES]
    with_devices = {one.node for one in view.allocations}
    found: list[LogLine] = []
    for node in nodes:
        try:
            lines = _search(executor, scope, NodeRef(node, project=view.job.project), span)
        except (NotFoundError, LimitExceededError, QueryTimeoutError):
            continue  # a node without an agent, or too much to search: the other rules still run
        found += [line for line in lines if _concerns(line, view, devices=node in with_devices)]
    return sorted(found, key=lambda line: line.order)


def task_lines(
    executor: Executor, scope: Scope, nodes: Iterable[NodeRef], span: TimeRange, which: Sequence[Rule]
) -> tuple[list[LogLine], list[str]]:
    """Read the first lines of each node's kernel log that match each rule's search, in order of time.

    Each line has its node as its replica. Also returns a sentence for each node that could not be searched, with the
    reason.
    """
    searching = [rule for rule in which if rule.kernel]
    refs = list(nodes)
    most = min(MOST_LINES, max(LEAST_LINES, MOST_TASK_LINES // max(1, len(refs) * len(searching))))
    found: dict[object, LogLine] = {}
    failures: list[str] = []
    for ref in refs:
        for rule in searching:
            try:
                lines = _lines_of(executor, scope, ref, span, query_of((rule,)), most)
            except NotFoundError:  # the node was deleted meanwhile
                break
            except (LimitExceededError, QueryTimeoutError) as error:
                failures.append(f"the kernel's log of {ref.name} was not searched: {error.message}")
                break
            found.update(((ref.name, line.order), line) for line in lines)
    return sorted(found.values(), key=lambda line: line.order), failures


@lru_cache(maxsize=64)
def query_of(which: tuple[Rule, ...]) -> LogQuery:
    """Build the search for kernel log lines that the rules need."""
    wanted = " OR ".join(f"({rule.kernel})" for rule in which if rule.kernel)
    query = parse_log_query(f"facility:kern AND ({wanted})")
    if query is None:
        raise InvalidRequestError("no rule reads the kernel's log", "query")
    return query


def _search(executor: Executor, scope: Scope, ref: NodeRef, span: TimeRange) -> Sequence[LogLine]:
    """Read the lines of a node's kernel log that match any rule's search.

    If the log is short, all lines are read and matched here. The reason: the engine needs forty milliseconds just to
    parse the conditions of all rules, and a job may have many nodes.
    """
    wanted = query_of(rules())
    lines = _lines_of(executor, scope, ref, span, _KERNEL, QUIET + 1)
    if len(lines) > QUIET:
        return _read_both_ends(executor, scope, ref, span, wanted)
    return [line for line in lines if matches(wanted, line)]


def _read_both_ends(
    executor: Executor, scope: Scope, ref: NodeRef, span: TimeRange, query: LogQuery
) -> Sequence[LogLine]:
    """Read the first and the last lines. Otherwise a link that flaps all the time would hide the cause of the end."""
    first = _lines_of(executor, scope, ref, span, query, MOST_LINES)
    if len(first) < MOST_LINES:
        return first
    last = _lines_of(executor, scope, ref, span, query, MOST_LINES, descending=True)
    return list({line.order: line for line in (*first, *last)}.values())


def _lines_of(
    executor: Executor,
    scope: Scope,
    ref: NodeRef,
    span: TimeRange,
    query: LogQuery,
    most: int,
    *,
    descending: bool = False,
) -> Sequence[LogLine]:
    start, end = span.start_ms * NS_PER_MS, span.end_ms * NS_PER_MS
    question = LogQuestion(ref=ref, query=query, start_ns=start, end_ns=end, limit=most, descending=descending)
    return executor.run(question, scope).lines


def faults_of_nodes(executor: Executor, scope: Scope, view: JobView, span: TimeRange) -> list[Event]:
    """Read events about devices of nodes while the job had devices there.

    In order of time; empty for a caller that may only see the job.
    """
    nodes = frozenset(one.node for one in view.allocations)
    if scope.job is not None or scope.grant is not None or not nodes:
        return []
    question = EventFilter(
        projects=frozenset({view.job.project}),
        nodes=nodes,
        types=frozenset({EventType.DEVICE_FAULT}),
        start=span.start_ms,
        end=span.end_ms,
        descending=True,
        limit=MOST_FAULTS,
    )
    return faults_of(view, [*reversed(executor.run(question, scope).events)])


def _concerns(line: LogLine, view: JobView, *, devices: bool) -> bool:
    if line.job:
        return line.job == view.job.id
    killed = _kills(line, view)
    return any(
        rule.of_nodes or (devices and rule.of_devices) or (killed and rule.of_kills)
        for rule in rules()
        if rule.kernel and matches(query_of((rule,)), line)
    )


def _kills(line: LogLine, view: JobView) -> bool:
    """True if SIGKILL ended a replica of the job on the line's node at about that time."""
    return any(
        replica.exit_code == SIGKILLED
        and replica.node == line.node
        and replica.end is not None
        and abs(replica.end - line.time_ns // NS_PER_MS) <= _KILL_MS
        for replica in view.replicas
    )


STEPS = 720
"""Steps of a job's life that rules see at most; of a job with many devices fewer."""
_FEWEST, _POINTS, _POINTS_A_QUESTION = 30, 4_000_000, 1_000_000
MOST_EVENTS, TAIL_LINES, WARNING_LINES, SEARCHED_LINES = 1_000, 2_000, 2_000, 1_000


def gather(executor: Executor, ref: JobRef, scope: Scope, clock: Clock, which: Sequence[Rule]) -> Case:
    """Read the case of a job. Raises as ``Executor.run`` does, on the caller's budget."""
    view = executor.run(JobQuestion(ref), scope)
    own = JobRef(view.job.id, view.job.project)
    now_ms = clock.now_ms()
    span = life(view.job, now_ms)
    means = names_of(which, lambda rule: rule.metrics)
    counters = names_of(which, lambda rule: rule.counters)
    step_ms = step_of(view, span, len(means) + len(counters))

    # An answer that includes unmeasured metrics could not be cached: an agent may begin to measure them.
    measured = add_derived({*executor.run(MeasuredNamesQuestion(own), scope), *view.job.limits})

    def read(names: Sequence[str], statistic: Statistic) -> Signals:
        own_names = [name for name in names if name in measured]
        return signals_of_job(executor, scope, view, own_names, span, step_ms, statistic)

    nodes = names_of(which, lambda rule: rule.nodes)
    kernel = kernel_lines(executor, scope, view, span)
    faults = faults_of_nodes(executor, scope, view, span)
    of_nodes = signals_of_nodes(executor, scope, view, nodes, span, step_ms)
    return Case(
        view=view,
        span=span,
        now_ms=now_ms,
        step_ms=step_ms,
        means=read(means, Statistic.MEAN),
        increases=read(counters, Statistic.INCREASE),
        nodes=of_nodes,
        mounts=find_used_mounts(executor, scope, view, of_nodes, span),
        events=_events(executor, own, scope),
        lines=log_lines(executor, own, scope, which),
        kernel=kernel,
        faults=faults,
        addresses=addresses_of(executor, scope, find_reported_places(kernel, faults)),
    )


def signals_of_job(
    executor: Executor,
    scope: Scope,
    view: JobView,
    names: Sequence[str],
    span: TimeRange,
    step_ms: int,
    statistic: Statistic = Statistic.MEAN,
) -> Signals:
    """Read metrics of a job, device by device: one question, or several for a very large job."""
    own = JobRef(view.job.id, view.job.project)
    whole = view if scope.job is None else None  # a share token sees no allocations
    found: dict[str, list[Signal]] = {}
    for some in _chunks(view, names, span, step_ms):
        query = MetricQuery(subject=own, metrics=some, range=span, step_ms=step_ms, by=By.DEVICE, statistic=statistic)
        for signal in signals_of(executor.run(SampledQuestion(query, whole), scope)):
            found.setdefault(signal.metric, []).append(signal)
    return found


def signals_of(lines: Iterable[SampledLine]) -> Iterator[Signal]:
    """Convert the lines of an answer to signals."""
    for line, presence in ((one.line, one.presence) for one in lines):
        signal = Signal(line.metric, presence.first, line.value, line.replica, line.node, line.device, line.rank)
        yield signal.sampled_until(presence.until)


def log_lines(executor: Executor, ref: JobRef, scope: Scope, which: Sequence[Rule]) -> list[LogLine]:
    """Read a job's last lines, first and last warnings and errors, and lines that rules search; in order of time."""
    questions = (
        LogQuestion(ref=ref, descending=True, limit=TAIL_LINES),
        LogQuestion(ref=ref, descending=True, limit=WARNING_LINES, min_level=Level.WARNING),
        LogQuestion(ref=ref, limit=WARNING_LINES, min_level=Level.WARNING),
    )
    tail = executor.run(questions[0], scope).lines
    found = {line.order: line for line in tail}
    if len(tail) == TAIL_LINES:
        for question in questions[1:]:
            found.update((line.order, line) for line in executor.run(question, scope).lines)
        found.update((line.order, line) for line in _search_log(executor, ref, scope, which))
    return [found[order] for order in sorted(found)]


def _search_log(executor: Executor, ref: JobRef, scope: Scope, which: Sequence[Rule]) -> Sequence[LogLine]:
    """Return the first lines that match the rules' searches; none if the log is too large to search."""
    query = parse_log_query(" OR ".join(f"({rule.lines})" for rule in which if rule.lines))
    if query is None:
        return ()
    try:
        return executor.run(LogQuestion(ref=ref, query=query, limit=SEARCHED_LINES), scope).lines
    except (LimitExceededError, QueryTimeoutError):
        return ()


def _events(executor: Executor, ref: JobRef, scope: Scope) -> list[Event]:
    question = EventFilter(projects=frozenset({ref.project or ""}), jobs=(ref.id,), descending=True, limit=MOST_EVENTS)
    return list(reversed(executor.run(question, scope).events))


def names_of(which: Iterable[Rule], of: Callable[[Rule], Sequence[str]]) -> list[str]:
    """Return the names of one kind that the rules need, each once."""
    return sorted({name for rule in which for name in of(rule)})


def _members(view: JobView) -> tuple[int, int]:
    replicas = {replica.name for replica in view.replicas}
    devices = {(one.replica, one.node, one.device) for one in view.allocations}
    return max(len(replicas), 1), len(devices)


def step_of(view: JobView, span: TimeRange, metrics: int, most: int = STEPS, points: int = _POINTS) -> int:
    """Return the step for reading a number of metrics of a job: ``most`` steps, fewer for many devices."""
    replicas, devices = _members(view)
    lines = (replicas + devices) * max(metrics, 1)
    return default_step(span, int(np.clip(points // lines, _FEWEST, most)))


def _chunks(view: JobView, names: Sequence[str], span: TimeRange, step_ms: int) -> Iterable[tuple[str, ...]]:
    """Split the metrics into chunks whose answers fit the limits: one chunk, unless the job is very large."""
    replicas, devices = _members(view)
    buckets = span.length_ms // step_ms + 2
    some: list[str] = []
    points = 0
    for name in names:
        metric = CATALOG[name]
        cost = buckets * (devices if metric.scope is MetricScope.DEVICE else replicas)
        if some and points + cost > _POINTS_A_QUESTION:
            yield tuple(some)
            some, points = [], 0
        some.append(name)
        points += cost
    if some:
        yield tuple(some)
