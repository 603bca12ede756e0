"""Completeness of a job's stored data: gaps of its replicas, state of its nodes' agents, damaged parts.

Arrival times are not stored. Late samples are derived from the agents' own metrics about data waiting on disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.model.batch import Bools, BucketColumns, Int64s, SeriesKeys
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.order import make_natural_key
from jobmeter.model.quality import DamagedRows, JobQuality, MeasuredStretch, NodeQuality, ReplicaQuality, SampleGap
from jobmeter.model.question import Question
from jobmeter.model.series import NO_JOB, NamePart, Series, compute_job_key
from jobmeter.model.time import MINUTE, TimeRange
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.gaps import Gaps, Presence, find_gaps
from jobmeter.query.meter import Meter
from jobmeter.query.quality_text import list_sentences
from jobmeter.query.request import JobRef
from jobmeter.query.selection import find_own_series
from jobmeter.query.source import Source, read_series_buckets
from jobmeter.settings import Limits
from jobmeter.store.base import SeriesSelector, Store
from jobmeter.store.damage import DamagedPart

REGULAR = ("cpu.time", "cpu.usage", "memory.usage", "gpu.utilization", "npu.utilization", "cpu.utilization")
"""Metrics sampled at an interval as long as a replica runs. The first available one is evaluated."""
AGENT = frozenset({"agent.samples", "agent.dropped", "agent.spool.damaged", "agent.spool.size", "agent.clock.offset"})
MOST_GAPS, MOST_STRETCHES, MOST_NODES = 1_000, 100, 256
STEPS = 1_000
_FEWEST_STEPS, _POINTS = 30, 1_000_000
_RAN_MS = MINUTE
"""Least run time in milliseconds of a replica before missing samples are reported."""
_LATE_MS = MINUTE
"""Least delay in milliseconds that counts as late. Shorter delays are normal transit."""
_MOST_NAMES = 64
_DAMAGE = frozenset({"samples", "minutes", "hours", "journal"})

K = TypeVar("K")
_Member = tuple[str, int]
"""Replica and its attempt."""
_Place = tuple[str, str]
"""Cluster and node."""


class QualityQuestion(msgspec.Struct, Question[JobQuality], frozen=True):
    """Question for the completeness of a job's stored data."""

    by_resource = of_job = True

    ref: JobRef


class _Read(msgspec.Struct, frozen=True, eq=False):
    """Series in steps: ``columns`` sorted by series and time; series k has the rows ``slice_rows(k)``."""

    series: Sequence[Series]
    columns: BucketColumns
    bounds: Sequence[int]
    step_ms: int

    def slice_rows(self, at: int) -> slice:
        """Return the slice of a series' steps."""
        return slice(self.bounds[at], self.bounds[at + 1])

    def group_by(self, key: Callable[[Series], K]) -> dict[K, list[int]]:
        """Group the series that have steps by a key."""
        return group_pairs(
            (key(one), at) for at, one in enumerate(self.series) if self.bounds[at + 1] > self.bounds[at]
        )

    def compute_presence(self, which: Sequence[int]) -> Presence:
        """Return the presence of any of those series."""
        at = np.concatenate([np.arange(self.bounds[one], self.bounds[one + 1]) for one in which])
        columns = self.columns
        counts = columns.count[at].astype(np.int64)
        return Presence.combine(columns.first_time[at], columns.last_time[at], counts, self.step_ms)


def measure_quality(source: Source, view: JobView, scope: Scope, meter: Meter) -> JobQuality:
    """Answer a ``QualityQuestion`` about a visible job, in steps, from roll-ups if available.

    Reads a bounded number of rows. Raises LimitExceededError or QueryTimeoutError.
    """
    job, now_ms, limits = view.job, meter.clock.now_ms(), meter.limits
    span = compute_life(job, now_ms)
    places = list(dict.fromkeys((one.cluster, one.node) for one in view.replicas if one.node))
    open_nodes = scope.job is None and scope.grant is None
    own = _choose_series(*_find_series(source.store, job, limits))
    agents = _agents(source.store, job, limits, places[:MOST_NODES] if open_nodes else ())
    step_ms = choose_step(span, int(np.clip(_POINTS // max(len(own) + len(agents), 1), _FEWEST_STEPS, STEPS)))
    nodes = _nodes(_read(source, agents, span, step_ms, meter), view, span)
    replicas, found = _replicas(_read(source, own, span, step_ms, meter), view, nodes, now_ms)
    longest = sorted(sorted(found, key=lambda gap: gap.start - gap.end)[:MOST_GAPS], key=lambda gap: gap.start)
    damaged = _list_damaged(source.store.list_damaged(), compute_job_key(job.project, job.id), span)
    answer = JobQuality(
        job=job.id,
        project=job.project,
        start=span.start_ms,
        end=span.end_ms,
        step=step_ms,
        complete=_is_complete(replicas, found, nodes.values(), damaged),
        coverage=_coverage(replicas),
        replicas=replicas,
        gaps=longest,
        gap_count=len(found),
        nodes=[nodes[place] for place in sorted(nodes)] if open_nodes else None,
        nodes_total=len(places),
        damaged=damaged,
        ahead=max((job.last_sample or 0) - now_ms, 0),
    )
    return msgspec.structs.replace(answer, sentences=list_sentences(answer))


def _find_series(store: Store, job: Job, limits: Limits) -> tuple[Sequence[Series], Sequence[str]]:
    """Find the series that can be evaluated, and their metrics, best first."""
    found = find_own_series(store, job, frozenset(REGULAR), limits)
    if found:
        return found, REGULAR
    # Imports and Flink have other metrics: any of them will do, except metrics reported by programs, which have no
    # interval.
    own = SeriesSelector(jobs=(compute_job_key(job.project, job.id),), limit=_MOST_NAMES)
    names = [name for name in store.list_names(own, NamePart.METRIC) if not name.startswith(("app.", "agent.", "job."))]
    return (find_own_series(store, job, frozenset(names), limits), names) if names else ((), ())


def _agents(store: Store, job: Job, limits: Limits, places: Sequence[_Place]) -> list[Series]:
    """Find the agents' own series: of the job's run, or of its nodes."""
    own = find_own_series(store, job, AGENT, limits)
    running = {(one.cluster, one.node) for one in own}
    others = tuple(place for place in places if place not in running)
    if not others:
        return own
    project = frozenset({job.project})
    selector = SeriesSelector(projects=project, jobs=(NO_JOB,), nodes=others, metrics=AGENT, limit=limits.query_series)
    return [*own, *store.find(selector)]


def _read(source: Source, series: Sequence[Series], span: TimeRange, step_ms: int, meter: Meter) -> _Read:
    counters = np.array([one.metric in {"agent.dropped", "agent.spool.damaged"} for one in series], np.bool_)
    columns = read_series_buckets(
        source, SeriesKeys.from_series(series), counters, span, step_ms, owned_ms=0, meter=meter
    )
    bounds = np.searchsorted(columns.index, np.arange(len(series) + 1)).tolist()
    return _Read(series, columns, bounds, step_ms)


def _choose_series(series: Iterable[Series], names: Sequence[str]) -> list[Series]:
    """Choose one series per replica and node: the first available metric, the first device."""
    order = {name: at for at, name in enumerate(names)}

    def rank(one: Series) -> tuple[int, tuple[tuple[str, str], ...], str]:
        return order[one.metric], one.labels, one.device

    best: dict[tuple[_Member, _Place], Series] = {}
    metrics: dict[_Member, int] = {}
    for one in series:
        member = (one.replica, one.attempt)
        place = (member, (one.cluster, one.node))
        if place not in best or rank(one) < rank(best[place]):
            best[place] = one
            metrics[member] = min(metrics.get(member, len(order)), order[one.metric])
    return [one for (member, _), one in best.items() if order[one.metric] == metrics[member]]


def _replicas(
    read: _Read, view: JobView, nodes: Mapping[_Place, NodeQuality], now_ms: int
) -> tuple[list[ReplicaQuality], list[SampleGap]]:
    members = read.group_by(lambda one: (one.replica, one.attempt))
    recorded = {(one.name, one.attempt): one for one in view.replicas}
    measured, found = list[ReplicaQuality](), list[SampleGap]()
    for member, which in members.items():
        presence = read.compute_presence(which)
        series = read.series[which[-1]]
        record = recorded.get(member)
        node = series.node or ("" if record is None else record.node)
        away = nodes.get((series.cluster, node))
        missing = find_gaps(presence)
        measured.append(_describe_measured(member, node, series.metric, presence, missing))
        found += _gaps(member, node, missing, away.away if away else ())
    unmeasured = [
        ReplicaQuality(replica=one.name, attempt=one.attempt, node=one.node)
        for member, one in recorded.items()
        if members and member not in members and _ran_long_enough(one, view, now_ms)
    ]
    return sorted([*measured, *unmeasured], key=lambda one: (make_natural_key(one.replica), one.attempt)), found


def _describe_measured(member: _Member, node: str, metric: str, presence: Presence, found: Gaps) -> ReplicaQuality:
    first, last = int(presence.first[0]), int(presence.last.max())
    interval = found.interval
    return ReplicaQuality(
        replica=member[0],
        attempt=member[1],
        node=node,
        metric=metric,
        first=first,
        last=last,
        interval=None if interval is None else round(interval),
        samples=presence.samples,
        missing=int(found.missing.sum()),
        gaps=len(found),
        coverage=None if interval is None else _share(found.lost_ms, last - first + interval),
    )


def _gaps(member: _Member, node: str, found: Gaps, away: Sequence[MeasuredStretch]) -> list[SampleGap]:
    columns = (found.start.tolist(), found.end.tolist(), found.missing.tolist(), found.exact.tolist())
    return [
        SampleGap(
            replica=member[0],
            attempt=member[1],
            node=node,
            start=start,
            end=end,
            missing=missing,
            exact=exact,
            agent_away=any(one.start < end and start < one.end for one in away),
        )
        for start, end, missing, exact in zip(*columns, strict=True)
    ]


def _ran_long_enough(replica: Replica, view: JobView, now_ms: int) -> bool:
    """Return True if the replica ran long enough to be measured, by its record."""
    if replica.start is None or replica.state is JobState.QUEUED:
        return False
    ended = replica.end if replica.end is not None else view.job.end
    if ended is None and view.job.state.finished:
        return False
    return (now_ms if ended is None else ended) - replica.start >= _RAN_MS


def _nodes(read: _Read, view: JobView, span: TimeRange) -> dict[_Place, NodeQuality]:
    places = read.group_by(lambda one: (one.cluster, one.node))
    return {place: _node(place, which, read, _list_stays(view, place, span)) for place, which in places.items()}


def _node(place: _Place, which: Sequence[int], read: _Read, stays: Sequence[MeasuredStretch]) -> NodeQuality:
    columns = read.columns
    away, late = list[MeasuredStretch](), list[MeasuredStretch]()
    dropped: dict[str, int] = {}
    damaged, offset = 0.0, None
    for at in which:
        series, rows = read.series[at], read.slice_rows(at)
        match series.metric:
            case "agent.samples":
                away += _cut_to_stays(find_gaps(read.compute_presence([at])), stays)
            case "agent.spool.size":
                late += _find_waiting(columns.first_time[rows], columns.last_time[rows], columns.minimum[rows] > 0)
            case "agent.dropped":
                reason = dict(series.labels).get("reason", "")
                dropped[reason] = dropped.get(reason, 0) + round(float(columns.increase[rows].sum()))
            case "agent.spool.damaged":
                damaged += float(columns.increase[rows].sum())
            case _:
                ends = (float(columns.minimum[rows].min()), float(columns.maximum[rows].max()))
                offset = max((*ends, offset or 0.0), key=abs)
    return NodeQuality(
        node=place[1],
        cluster=place[0],
        away=_select_longest(away),
        late=_select_longest(late),
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
        damaged_bytes=round(damaged),
        clock_offset=offset,
    )


def _list_stays(view: JobView, place: _Place, span: TimeRange) -> list[MeasuredStretch]:
    return [
        MeasuredStretch(span.start_ms if one.start is None else one.start, span.end_ms if one.end is None else one.end)
        for one in view.replicas
        if (one.cluster, one.node) == place
    ] or [MeasuredStretch(span.start_ms, span.end_ms)]


def _cut_to_stays(found: Gaps, stays: Sequence[MeasuredStretch]) -> list[MeasuredStretch]:
    return [
        MeasuredStretch(start, end)
        for start, end, exact in zip(found.start.tolist(), found.end.tolist(), found.exact.tolist(), strict=True)
        if exact and any(stay.start < end and start < stay.end for stay in stays)
    ]


def _find_waiting(first: Int64s, last: Int64s, waits: Bools) -> list[MeasuredStretch]:
    """Find runs of steps in which data was always waiting, if they last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], waits, [False])).astype(np.int8)))
    stretches = [(int(first[start]), int(last[end - 1])) for start, end in edges.reshape(-1, 2).tolist()]
    return [MeasuredStretch(start, end) for start, end in stretches if end - start >= _LATE_MS]


def _select_longest(stretches: Sequence[MeasuredStretch]) -> list[MeasuredStretch]:
    longest = sorted(stretches, key=lambda one: one.start - one.end)[:MOST_STRETCHES]
    return sorted(longest, key=lambda one: one.start)


def _list_damaged(parts: Iterable[DamagedPart], key: int, span: TimeRange) -> list[DamagedRows]:
    return [
        DamagedRows(
            table=part.table,
            part=part.name,
            reason=part.reason,
            rows=part.rows,
            at_most=part.at_most,
            start=None if part.span is None else part.span.start_ms,
            end=None if part.span is None else part.span.end_ms,
        )
        for part in parts
        if part.table in _DAMAGE
        and part.may_concern(key)
        and (part.span is None or (part.span.start_ms <= span.end_ms and span.start_ms <= part.span.end_ms))
    ]


def _is_complete(
    replicas: Sequence[ReplicaQuality],
    found: Sequence[SampleGap],
    nodes: Iterable[NodeQuality],
    damaged: Sequence[DamagedRows],
) -> bool | None:
    given_up = any(node.dropped or node.damaged_bytes for node in nodes)
    if found or damaged or given_up or not all(one.samples for one in replicas):
        return False
    return True if any(one.coverage is not None for one in replicas) else None


def _coverage(replicas: Sequence[ReplicaQuality]) -> float | None:
    judged = [
        (one.coverage, one.last - one.first + (one.interval or 0))
        for one in replicas
        if one.coverage is not None and one.first is not None and one.last is not None
    ]
    lost = sum((1 - coverage) * length for coverage, length in judged)
    return _share(lost, sum(length for _, length in judged)) if judged else None


def _share(lost: float, whole: float) -> float:
    return round(min(max(1 - lost / whole, 0.0), 1.0), 6)
