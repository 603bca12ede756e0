"""Find the series that answer a query: the job's own, and series of devices allocated to it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from jobmeter.model.catalog import MetricScope, find
from jobmeter.model.job import Job, JobView, Node
from jobmeter.model.series import NO_JOB, Series, compute_job_key
from jobmeter.model.time import MAX_TIME_MS, TimeRange
from jobmeter.query.request import By, compute_series_start
from jobmeter.query.restarts import join_restarts
from jobmeter.query.selected_series import SeriesPart, SubjectKey, is_counter
from jobmeter.settings import Limits
from jobmeter.store.base import SeriesSelector, Store

EVER = TimeRange(0, MAX_TIME_MS)

NodesNamed = Callable[[frozenset[str]], Sequence[Node]]
"""Function that returns the nodes of given names."""
_Missing = Mapping[tuple[str, SubjectKey], Sequence[TimeRange]]
"""Times at which a job had a device without its own series, by (metric, device of a replica)."""
_AllocatedSeries = Mapping[tuple[str, str, str, str], Sequence[Series]]
"""Series of devices without a job, by (project, metric, node, device)."""
_MOST_NODES = 256
"""Most nodes of a job's whole life that are searched for series without a job.

With more, only nodes of the range are.
"""


class SeriesFilter(NamedTuple):
    """Filter of entries; empty parts match all."""

    replicas: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()

    def filter(self, entries: Iterable[SeriesPart]) -> list[SeriesPart]:
        """Return the entries that match."""
        required = set(self.labels)
        return [
            entry
            for entry in entries
            if (not self.replicas or entry.replica in self.replicas)
            and (not self.devices or entry.series.device in self.devices)
            and required <= set(entry.series.labels)
        ]


EVERYTHING = SeriesFilter()


class JobEntries(NamedTuple):
    """Entries of some metrics of a job.

    ``range_independent``: valid for every range until new series appear. ``unassigned``: includes series without a job.
    """

    entries: list[SeriesPart]
    range_independent: bool
    unassigned: bool = False


class _Places(NamedTuple):
    """Nodes as (cluster, node). ``complete`` is False if the registry does not know one of them yet."""

    nodes: tuple[tuple[str, str], ...]
    complete: bool


def find_own_series(
    store: Store, job: Job, names: frozenset[str] | None, limits: Limits, since: int | None = None
) -> list[Series]:
    """Find a job's own series of some metrics (None: of all), by a ``SeriesSelector``."""
    projects, keys = frozenset({job.project}), (compute_job_key(job.project, job.id),)
    return store.find(
        SeriesSelector(projects=projects, jobs=keys, metrics=names, since=since, limit=limits.query_series)
    )


def select_job(
    store: Store,
    view: JobView,
    own: Sequence[Series],
    names: frozenset[str],
    span: TimeRange,
    limits: Limits,
    nodes: NodesNamed,
) -> JobEntries:
    """Find the entries of some metrics of a job.

    ``own`` are the job's series. ``nodes`` returns nodes of its project by name.
    """
    entries = [SeriesPart(series, make_member(series), series.replica) for series in own]
    metrics, measured, members = select_device_metrics(names), _make_measured_test(own), list_devices(view)
    if all(measured(name, who) for who in members for name in metrics):
        return JobEntries(entries, range_independent=True)
    # If none of its devices has any series without a job, no entry is clipped to a part of the range.
    whole = len({(who.cluster, who.node) for who in members}) <= _MOST_NODES
    missing = _find_missing(view, own, metrics, EVER if whole else span)
    places = _places({who for _, who in missing}, nodes)
    found = _match_allocations(store, {view.job.project}, places, metrics, span, limits)
    if whole and next(_entries_allocated(view, missing, found), None) is None:
        return JobEntries(entries, range_independent=places.complete, unassigned=True)
    inside = _find_missing(view, own, metrics, span) if whole else missing
    return JobEntries([*entries, *_entries_allocated(view, inside, found)], range_independent=False)


def select_jobs(
    store: Store,
    views: Sequence[JobView],
    names: frozenset[str],
    span: TimeRange,
    limits: Limits,
    nodes: NodesNamed,
    most: int,
    by: By = By.JOB,
) -> list[SeriesPart]:
    """Find the entries of some metrics of many jobs, with members under ``name_owner``, in two store queries.

    ``nodes`` returns nodes of their projects by name. ``most`` limits the number of series. ``by`` is the kind of the
    lines; see ``join_restarts``.
    """
    keys = {compute_job_key(view.job.project, view.job.id): view for view in views}
    own: dict[int, list[Series]] = {key: [] for key in keys}
    if keys:
        selector = SeriesSelector(jobs=tuple(keys), metrics=names, since=compute_series_start(span, limits), limit=most)
        for series in store.find(selector):
            own[series.job_key].append(series)
    devices = select_device_metrics(names)
    missing = {key: _find_missing(view, own[key], devices, span) for key, view in keys.items()}
    projects = {view.job.project for view in views}
    places = _places({who for one in missing.values() for _, who in one}, nodes)
    found = _match_allocations(store, projects, places, devices, span, limits)
    entries: list[SeriesPart] = []
    for key, view in keys.items():
        measured = [SeriesPart(one, _set_owner(make_member(one), view.job), one.replica) for one in own[key]]
        allocated = _build_unclipped(view, missing[key], found, span)
        entries.extend(join_restarts([*measured, *allocated], view, by).entries)
    return entries


def find_node_series(
    store: Store,
    nodes: Sequence[Node],
    projects: frozenset[str] | None,
    names: frozenset[str],
    span: TimeRange,
    limits: Limits,
) -> Sequence[Series]:
    """Find the series of some metrics of nodes, for any job measured there."""
    selector = SeriesSelector(
        projects=projects,
        nodes=tuple((node.cluster, node.name) for node in nodes),
        metrics=names,
        since=compute_series_start(span, limits),
        limit=limits.query_series,
    )
    return store.find(selector)


def select_nodes(series: Iterable[Series]) -> list[SeriesPart]:
    """Build the entries of series of nodes."""
    return [SeriesPart(one, _member_of_node(one), one.replica) for one in series]


@lru_cache(maxsize=1_000)
def select_device_metrics(names: frozenset[str]) -> frozenset[str]:
    """Filter the names of metrics that describe a device."""
    metrics = (find(name) for name in names)
    return frozenset(metric.name for metric in metrics if metric is not None and metric.scope is MetricScope.DEVICE)


def list_devices(view: JobView) -> AbstractSet[SubjectKey]:
    """List the devices that replicas of a job had at any time; series without a job may belong to them."""
    latest = _find_latest_end(view, EVER)
    return {
        SubjectKey("", one.replica, one.cluster, one.node, one.device)
        for one in view.allocations
        if one.start < (latest if one.end is None else one.end)
    }


def name_owner(job: Job) -> str:
    """Return the name of a job's members in a query over several jobs."""
    return f"{job.project}/{job.id}"


def make_member(series: Series) -> SubjectKey:
    """Return the member to which a series of a job belongs. A replica that moved to another node stays one member."""
    if series.device:
        return SubjectKey("", series.replica, series.cluster, series.node, series.device)
    if series.replica:
        return SubjectKey("", series.replica, "", "", "")
    return SubjectKey("", "", series.cluster, series.node, "")


def _member_of_node(series: Series) -> SubjectKey:
    """Return the member of a query over several jobs: a device is one member, whichever job had it."""
    if series.device:
        return SubjectKey("", "", series.cluster, series.node, series.device)
    if series.replica:
        return SubjectKey(f"{series.project}/{series.job}", series.replica, series.cluster, series.node, "")
    return SubjectKey(f"{series.project}/{series.job}" if series.job else "", "", series.cluster, series.node, "")


def _match_allocations(
    store: Store,
    projects: Iterable[str],
    places: _Places,
    metrics: frozenset[str],
    span: TimeRange,
    limits: Limits,
) -> _AllocatedSeries:
    """Find series without a job for the devices of some nodes."""
    if not places.nodes:
        return {}
    selector = SeriesSelector(
        projects=frozenset(projects),
        jobs=(NO_JOB,),
        nodes=places.nodes,
        metrics=metrics,
        since=compute_series_start(span, limits),
        limit=limits.query_series,
    )
    found: dict[tuple[str, str, str, str], list[Series]] = {}
    for series in store.find(selector):
        found.setdefault((series.project, series.metric, series.node, series.device), []).append(series)
    return found


def _entries_allocated(view: JobView, missing: _Missing, found: _AllocatedSeries) -> Iterator[SeriesPart]:
    for (name, who), clips in missing.items():
        for series in found.get((view.job.project, name, who.node, who.device), ()):
            if who.cluster in ("", series.cluster):
                member = who._replace(cluster=series.cluster)
                yield from (SeriesPart(series, member, who.replica, clip) for clip in clips)


def _build_unclipped(
    view: JobView, missing: _Missing, found: _AllocatedSeries, span: TimeRange
) -> Iterator[SeriesPart]:
    """Build entries for one of many jobs: gauges of a device that the job had all the time need no clip.

    Without clips they can be read together.
    """
    for entry in _entries_allocated(view, missing, found):
        clip = entry.clip
        whole = clip is not None and clip.start_ms <= span.start_ms and clip.end_ms >= span.end_ms
        clipped = None if whole and not is_counter(entry.series.metric) else clip
        yield replace(entry, member=_set_owner(entry.member, view.job), clip=clipped)


def _set_owner(member: SubjectKey, job: Job) -> SubjectKey:
    return SubjectKey(name_owner(job), *member[1:])


def _find_missing(view: JobView, own: Sequence[Series], metrics: frozenset[str], span: TimeRange) -> _Missing:
    """Return the times at which the job had a device without its own series, by (metric, device)."""
    measured = _make_measured_test(own)
    return {
        (name, who): clips
        for who, clips in _times(view, span).items()
        for name in sorted(metrics)
        if not measured(name, who)
    }


def _make_measured_test(own: Sequence[Series]) -> Callable[[str, SubjectKey], bool]:
    """Return a function that tells if a job has its own series of a metric and device."""
    by_node = {(series.metric, series.node, series.device) for series in own}
    # An import may name a replica's device without its node.
    by_replica = {(series.metric, series.replica, series.device) for series in own if not series.node}
    return lambda name, who: (name, who.node, who.device) in by_node or (name, who.replica, who.device) in by_replica


def _times(view: JobView, span: TimeRange) -> dict[SubjectKey, list[TimeRange]]:
    """Return the times at which each replica had each device, near the span. Several reports are merged."""
    latest = _find_latest_end(view, span)
    times: dict[SubjectKey, list[TimeRange]] = {}
    for one in sorted(view.allocations, key=lambda allocation: allocation.start):
        end = latest if one.end is None else one.end
        if one.start >= end or one.start >= span.end_ms or end <= span.start_ms:
            continue
        clips = times.setdefault(SubjectKey("", one.replica, one.cluster, one.node, one.device), [])
        if clips and one.start <= clips[-1].end_ms:
            clips[-1] = TimeRange(clips[-1].start_ms, max(clips[-1].end_ms, end))
        else:
            clips.append(TimeRange(one.start, end))
    return times


def _find_latest_end(view: JobView, span: TimeRange) -> int:
    """Return the end of an allocation without a recorded end."""
    if view.job.state.finished and view.job.end is not None:
        return min(span.end_ms, view.job.end + 1)
    return span.end_ms


def _places(members: Iterable[SubjectKey], nodes: NodesNamed) -> _Places:
    """Find the nodes of members. An allocation without a cluster stands for the node of that name in any cluster."""
    places = {(who.cluster, who.node) for who in members}
    unsaid = frozenset(node for cluster, node in places if not cluster)
    found = nodes(unsaid) if unsaid else ()
    places |= {(node.cluster, node.name) for node in found}
    return _Places(tuple(sorted(places)), unsaid <= {node.name for node in found})
