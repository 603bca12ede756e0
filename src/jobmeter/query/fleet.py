"""Overview of the fleet: all nodes, their devices, the jobs that have them, and their use. Needs few queries.

The use of a device is its newest sample of the last minutes: measured without a job if available, else the busiest of
its jobs. A device is idle if a job has it and every sample of the window is at most ``IDLE``. The window is that of the
rule ``gpu_idle_allocated``.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError
from jobmeter.model.job import Job, JobFilter, JobState, Node
from jobmeter.model.order import make_natural_key
from jobmeter.model.question import Question
from jobmeter.model.series import Series
from jobmeter.model.time import MINUTE, SECOND, TimeRange
from jobmeter.query.buckets import BucketedSeries, read
from jobmeter.query.faults import NodeFault, read_node_faults
from jobmeter.query.idle import ACTIVE, HOLD_MS, IDLE, WORK
from jobmeter.query.inventory import Inventory, find_divided_devices, list_named_devices, map_device_states
from jobmeter.query.meter import Meter
from jobmeter.query.nodes import SILENT_MS, NodeState, determine_state, list_visible_nodes, merge_machines
from jobmeter.query.permitted import filter_permitted_series, list_permitted_jobs
from jobmeter.query.request import Statistic, find_metrics, list_sources
from jobmeter.query.selected_series import SelectedSeries, SeriesPart, SubjectKey
from jobmeter.query.source import WHOLE_MS, Source
from jobmeter.query.usage import UsageReadings
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.base import SeriesSelector

WINDOW_MS = HOLD_MS
FRESH_MS = 5 * MINUTE
"""Largest age of a current value in milliseconds. A device with a sample of a job in that time belongs to the job."""
CPU = "node.cpu.utilization"
MOST_JOBS = 20_000
"""Most running jobs in an overview."""
_SERIES = 10

Place = tuple[str, str]
"""Node: (cluster, name)."""
DeviceKey = tuple[str, str, str]
"""Device: (cluster, node, name)."""


class FleetDevice(msgspec.Struct, frozen=True):
    """Device: ``use`` 0 to 1, None without a recent measurement; ``job`` an index into ``Fleet.jobs``, or None.

    ``idle``: see the module. ``state`` tells why its agent cannot measure it, empty if it can.
    """

    device: str
    type: str
    use: float | None
    job: int | None
    idle: bool
    state: str = ""


class FleetNode(msgspec.Struct, frozen=True):
    """Node with its state and its faults. ``cpu`` is its CPU use, 0 to 1, None if unmeasured."""

    node: Node
    state: NodeState
    cpu: float | None
    devices: Sequence[FleetDevice]
    faults: Sequence[NodeFault] = ()


class Fleet(msgspec.Struct, frozen=True):
    """Nodes by cluster and name, and the running jobs that have devices on them."""

    now_ms: int
    nodes: Sequence[FleetNode]
    jobs: Sequence[Job]


class FleetQuestion(msgspec.Struct, Question[Fleet], frozen=True, kw_only=True):
    """Question for the fleet that the caller may see. ``silent_ms``: longest silence of a node that is up."""

    by_resource = of_job = True

    projects: frozenset[str] | None = None
    silent_ms: int = SILENT_MS


class _Found(msgspec.Struct):
    """Owner, newest use and idleness of each device found."""

    holder: dict[DeviceKey, int] = msgspec.field(default_factory=dict)
    use: dict[DeviceKey, float] = msgspec.field(default_factory=dict)
    idle: set[DeviceKey] = msgspec.field(default_factory=set)
    since: dict[DeviceKey, int] = msgspec.field(default_factory=dict)
    cpu: dict[Place, float] = msgspec.field(default_factory=dict)
    devices: dict[Place, set[str]] = msgspec.field(default_factory=dict)

    def add_device(self, key: DeviceKey) -> DeviceKey:
        """Note that the node has the device. Returns the key."""
        self.devices.setdefault(key[:2], set()).add(key[2])
        return key


def read_fleet(registry: Registry, source: Source, question: FleetQuestion, scope: Scope, meter: Meter) -> Fleet:
    """Answer a ``FleetQuestion``. Raises LimitExceededError for more than ``MOST_JOBS`` running jobs."""
    now_ms, projects = meter.clock.now_ms(), scope.intersect_projects(question.projects)
    nodes = list_visible_nodes(registry, scope, projects)
    found = _Found()
    jobs = _holders(registry, projects, scope, now_ms, found) if nodes else []
    places = {(node.cluster, node.name) for node in nodes}
    if places:
        series = source.store.find(_selector(places, projects, now_ms, meter.limits))
        _measure(source, meter, filter_permitted_series(registry, series, scope, now_ms), now_ms, found)
    inventory = Inventory(nodes)
    every = merge_machines(nodes)
    faults = read_node_faults(registry, every, projects, scope, now_ms) if every else {}
    shown = [
        replace(
            _node(one, found, inventory, question.silent_ms, now_ms), faults=faults.get((one.cluster, one.name), ())
        )
        for one in every
    ]
    return Fleet(now_ms, shown, jobs)


def _holders(
    registry: Registry, projects: frozenset[str] | None, scope: Scope, now_ms: int, found: _Found
) -> list[Job]:
    """List the running jobs that have devices, and store the owner of each device in ``found``."""
    running = frozenset({JobState.RUNNING})
    page = list_permitted_jobs(registry, JobFilter(projects=projects, states=running, limit=MOST_JOBS), scope, now_ms)
    if page.total > MOST_JOBS:
        raise LimitExceededError(f"the fleet has more than {MOST_JOBS} running jobs: name a project", "project")
    span = TimeRange(max(0, now_ms - FRESH_MS), now_ms + 1)
    names = [(job.project, job.id) for job in page.jobs]
    jobs: list[Job] = []
    for view in registry.list_job_views(names, span, now_ms):
        if not view.allocations:
            continue
        for one in view.allocations:
            key = found.add_device((one.cluster, one.node, one.device))
            found.holder[key] = len(jobs)
            found.since[key] = max(one.start, found.since.get(key, 0))
        jobs.append(view.job)
    return jobs


def _selector(places: Iterable[Place], projects: frozenset[str] | None, now_ms: int, limits: Limits) -> SeriesSelector:
    return SeriesSelector(
        projects=projects,
        nodes=tuple(sorted(places)),
        metrics=list_sources(find_metrics((*WORK, CPU))),
        since=max(0, now_ms - WINDOW_MS),
        limit=_SERIES * limits.query_series,
    )


def _measure(source: Source, meter: Meter, series: Sequence[Series], now_ms: int, found: _Found) -> None:
    # A MIG instance has no utilization. The multiprocessors of other devices need not be read.
    utilized = {(one.cluster, one.node, one.device) for one in series if one.metric not in (*ACTIVE, CPU)}
    series = [one for one in series if one.metric not in ACTIVE or (one.cluster, one.node, one.device) not in utilized]
    alone = {(one.metric, one.cluster, one.node, one.device) for one in series if not one.job}
    entries = [
        SeriesPart(one, SubjectKey(one.job, "", one.cluster, one.node, one.device), "")
        for one in series
        if not one.job or (one.metric, one.cluster, one.node, one.device) not in alone
    ]
    shape = SelectedSeries(entries)
    span = TimeRange(max(0, now_ms - WINDOW_MS), now_ms + meter.limits.future_seconds * SECOND)
    readings = UsageReadings(BucketedSeries(shape, read(shape, source, span, WHOLE_MS, meter), {}))
    columns = readings.frame.columns
    newest = np.zeros(len(shape.members), np.int64)
    np.maximum.at(newest, shape.member[columns.index], columns.last_time)
    fresh = newest > now_ms - FRESH_MS
    for metric in WORK:
        last, most = readings.compute(metric, Statistic.LAST), readings.compute(metric, Statistic.MAX)
        for at in np.flatnonzero(fresh & np.isfinite(last)).tolist():
            member = shape.members[at]
            key = found.add_device((member.cluster, member.node, member.device))
            before = found.use.get(key)
            found.use[key] = max(float(last[at]), 0.0 if before is None else before)
            if most[at] > IDLE:
                found.idle.discard(key)
            elif before is None:
                found.idle.add(key)
    cpu = readings.compute(CPU)
    for at in np.flatnonzero(fresh & np.isfinite(cpu)).tolist():
        member = shape.members[at]
        if not member.device:
            found.cpu[member.cluster, member.node] = float(cpu[at])


def _node(node: Node, found: _Found, inventory: Inventory, silent_ms: int, now_ms: int) -> FleetNode:
    place = (node.cluster, node.name)
    names = {*list_named_devices(node.info), *found.devices.get(place, ())} - find_divided_devices(node.info)
    states = map_device_states(node.info)
    devices = [
        replace(_device(node, name, found, inventory, now_ms), state=states.get(name, ""))
        for name in sorted(names, key=make_natural_key)
    ]
    return FleetNode(node, determine_state(node, silent_ms, now_ms), found.cpu.get(place), devices)


def _device(node: Node, name: str, found: _Found, inventory: Inventory, now_ms: int) -> FleetDevice:
    key = (node.cluster, node.name, name)
    holder = found.holder.get(key)
    # A device allocated for less than the window cannot have been idle for its length.
    long_enough = found.since.get(key, now_ms) <= now_ms - WINDOW_MS
    idle = holder is not None and key in found.idle and long_enough
    return FleetDevice(name, inventory.find_type(node.name, name), found.use.get(key), holder, idle)
