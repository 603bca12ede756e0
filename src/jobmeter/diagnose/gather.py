"""Reads the input of the rules for a job, in a few queries for all rules, and the kernel lines that they search."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case, Signals, find_used_mounts
from jobmeter.diagnose.kernel import read_kernel_lines, read_node_faults
from jobmeter.diagnose.nodes import find_reported_places, read_addresses, read_signals_of_nodes
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.signal import Signal
from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.model.catalog import CATALOG, MetricScope, add_derived
from jobmeter.model.event import Event, EventFilter, Level
from jobmeter.model.job import JobView
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.time import Clock, TimeRange
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.execute import Executor
from jobmeter.query.request import By, JobQuestion, JobRef, LogQuestion, MeasuredNamesQuestion, MetricQuery, Statistic
from jobmeter.query.sampled import SampledLine, SampledQuestion

STEPS = 720
"""Most steps of a job's life that rules see; fewer for a job with many devices."""
_FEWEST, _POINTS, _POINTS_A_QUESTION = 30, 4_000_000, 1_000_000
MOST_EVENTS, TAIL_LINES, WARNING_LINES, SEARCHED_LINES = 1_000, 2_000, 2_000, 1_000


def gather(executor: Executor, ref: JobRef, scope: Scope, clock: Clock, which: Sequence[Rule]) -> Case:
    """Read the case of a job. Raises as ``Executor.run`` does, on the caller's budget."""
    view = executor.run(JobQuestion(ref), scope)
    own = JobRef(view.job.id, view.job.project)
    now_ms = clock.now_ms()
    span = compute_life(view.job, now_ms)
    means = list_names(which, lambda rule: rule.metrics)
    counters = list_names(which, lambda rule: rule.counters)
    step_ms = step_of(view, span, len(means) + len(counters))

    # An answer that includes unmeasured metrics could not be cached: an agent may begin to measure them.
    measured = add_derived({*executor.run(MeasuredNamesQuestion(own), scope), *view.job.limits})

    def read(names: Sequence[str], statistic: Statistic) -> Signals:
        own_names = [name for name in names if name in measured]
        return read_job_signals(executor, scope, view, own_names, span, step_ms, statistic)

    nodes = list_names(which, lambda rule: rule.nodes)
    kernel = read_kernel_lines(executor, scope, view, span)
    faults = read_node_faults(executor, scope, view, span)
    of_nodes = read_signals_of_nodes(executor, scope, view, nodes, span, step_ms)
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
        addresses=read_addresses(executor, scope, find_reported_places(kernel, faults)),
    )


def read_job_signals(
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
        for signal in convert_lines(executor.run(SampledQuestion(query, whole), scope)):
            found.setdefault(signal.metric, []).append(signal)
    return found


def convert_lines(lines: Iterable[SampledLine]) -> Iterator[Signal]:
    """Convert the series of an answer to signals."""
    for line, presence in ((one.line, one.presence) for one in lines):
        signal = Signal(line.metric, presence.first, line.value, line.replica, line.node, line.device, line.rank)
        yield signal.with_ends(presence.until)


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


def list_names(which: Iterable[Rule], of: Callable[[Rule], Sequence[str]]) -> list[str]:
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
    return choose_step(span, int(np.clip(points // lines, _FEWEST, most)))


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
