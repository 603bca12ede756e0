"""Answer questions about resource groups with one registry query and two store queries, whatever their size."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.batch import References, SeriesKeys
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobFilter, JobState, JobView, Node
from jobmeter.model.time import DAY, Clock, TimeRange
from jobmeter.query import selection
from jobmeter.query.buckets import BucketedSeries, read
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNode,
    GroupNodesQuestion,
    GroupQuestion,
    GroupUsage,
    Load,
    NodeLoad,
    NodeLoadsQuestion,
    RequestsQuestion,
    sum_amounts,
)
from jobmeter.query.inventory import Inventory, list_device_types
from jobmeter.query.meter import Meter
from jobmeter.query.node_loads import compute_node_loads
from jobmeter.query.nodes import determine_state, merge_machines
from jobmeter.query.permitted import list_permitted_jobs
from jobmeter.query.reduce import build_buckets
from jobmeter.query.request import GroupRef, find_metrics, list_sources
from jobmeter.query.selected_series import SelectedSeries
from jobmeter.query.source import WHOLE_MS, Source
from jobmeter.query.subjects import find_projects
from jobmeter.query.usage import (
    LIMITS,
    METRICS,
    Allocated,
    Place,
    UsageParts,
    UsageReadings,
    compute_by_user,
    did_run,
    find_allocated,
)
from jobmeter.registry.base import Registry
from jobmeter.settings import Limits
from jobmeter.store.base import SeriesSelector

MOST_JOBS = 100_000
"""Most jobs of a group that a question may cover."""
_LOOK_BACK_MS = DAY
_SERIES = 10
"""Factor on the series limit of a group question, because it reads only a few samples of each series."""
_NOWHERE: Place = ("", "")
"""Node of replicas whose node is unknown."""
_SIZES = ("node.cpu.count", "node.memory.total")


class Groups:
    """Answers questions about resource groups; see ``jobmeter.query.group``. Stateless and thread-safe."""

    def __init__(self, registry: Registry, clock: Clock, limits: Limits, source: Source) -> None:
        self._registry = registry
        self._clock = clock
        self._limits = limits
        self._source = source

    def answer(
        self,
        question: GroupQuestion | CapacityQuestion | RequestsQuestion | GroupNodesQuestion | NodeLoadsQuestion,
        scope: Scope,
    ) -> GroupUsage | Amounts | Sequence[GroupNode] | Sequence[NodeLoad]:
        """Answer any question about groups."""
        if isinstance(question, GroupNodesQuestion):
            return self._nodes(question, scope)
        projects = self._projects(question.group, scope)
        match question:
            case GroupQuestion():
                return self._usage(question, projects, scope)
            case CapacityQuestion():
                nodes, parts, _ = self._find_present(question, LIMITS, projects)
                return sum_amounts(self._capacities(nodes, parts, projects, question.range).values())
            case RequestsQuestion():
                views = list(
                    self._registry.group_jobs(projects, question.group.id, question.range, self._clock.now_ms())
                )
                parts = self._select_in_state(views, question.range, question.states, projects)
                return parts.sum_limits(range(len(parts.jobs)))
            case NodeLoadsQuestion():
                return self._loads(question, projects)

    def _usage(self, question: GroupQuestion, projects: frozenset[str] | None, scope: Scope) -> GroupUsage:
        if question.workspace:
            self._check_workspace(question.workspace, projects, scope)
        nodes, parts, readings = self._find_present(question, METRICS, projects)
        capacity = sum_amounts(self._capacities(nodes, parts, projects, question.range).values())
        devices = frozenset(node.name for node in nodes if node.info.get("devices"))
        devices |= {node for one in parts.jobs for node, _ in one.devices}
        users, summary = compute_by_user(parts, readings, devices, question.workspace)
        return GroupUsage(capacity=capacity, users=users, summary=summary)

    def _find_present(
        self,
        question: GroupQuestion | CapacityQuestion | NodeLoadsQuestion,
        names: Sequence[str],
        projects: frozenset[str] | None,
    ) -> tuple[list[Node], UsageParts, UsageReadings]:
        """Find the nodes of the group, and the replicas of jobs that ran there in the range."""
        views = self._views(question.group, projects, question.range)
        nodes = self._members(question.group, projects, views)
        present = [view for view in views if did_run(view.job, question.range)]
        jobs = [find_allocated(view, question.range) for view in present]
        return nodes, *self._parts(present, jobs, question.range, names, projects)

    def _select_in_state(
        self, views: Sequence[JobView], span: TimeRange, states: frozenset[JobState], projects: frozenset[str] | None
    ) -> UsageParts:
        """Find the replicas of those jobs in one of the states."""
        jobs = [(view, find_allocated(view, span, states)) for view in views]
        present = [
            (view, one) for view, one in jobs if one.replicas or (not view.replicas and view.job.state in states)
        ]
        members = [view for view, _ in present], [one for _, one in present]
        parts, _ = self._parts(*members, span, LIMITS, projects, closed=True)
        return parts

    def _loads(self, question: NodeLoadsQuestion, projects: frozenset[str] | None) -> Sequence[NodeLoad]:
        nodes, parts, _ = self._find_present(question, LIMITS, projects)
        now_ms = self._clock.now_ms()
        views = list(self._registry.group_jobs(projects, question.group.id, question.range, now_ms))
        running = self._select_in_state(views, question.range, frozenset({JobState.RUNNING}), projects)
        capacities = self._capacities(nodes, parts, projects, question.range)
        loads = compute_node_loads(running, capacities)
        return [
            NodeLoad(
                node=node,
                state=determine_state(node, question.silent_ms, now_ms),
                capacity=capacities[node.cluster, node.name],
                load=loads.get((node.cluster, node.name), Load()),
            )
            for node in merge_machines(nodes)
        ]

    def _nodes(self, question: GroupNodesQuestion, scope: Scope) -> Sequence[GroupNode]:
        found: dict[Place, set[str]] = {}
        for node in self.list_nodes(question.group, question.range, scope):
            found.setdefault((node.name, node.cluster), set()).update(list_device_types(node.info))
        return [
            GroupNode(name=name, cluster=cluster, device_types=tuple(sorted(types - {""})))
            for (name, cluster), types in sorted(found.items())
        ]

    def list_nodes(self, group: GroupRef, span: TimeRange, scope: Scope) -> list[Node]:
        """Return the nodes of a group. Raises NotFoundError for an unknown group."""
        projects = self._projects(group, scope)
        return self._members(group, projects, self._views(group, projects, span))

    def _projects(self, group: GroupRef, scope: Scope) -> frozenset[str] | None:
        """Return the projects in which to search for the group. Raises NotFoundError for an unknown group."""
        error = NotFoundError(f"there is no resource group {group.id!r}", "resource_group", group.id)
        if scope.job is not None:
            raise error
        projects = find_projects(group.project, scope)
        if scope.grant is not None:
            if projects is None:
                projects = frozenset(one.name for one in self._registry.list_projects(None, self._clock.now_ms()))
            projects = frozenset(project for project in projects if scope.shows_group(project, group.id))
        if not any(node.resource_group == group.id for node in self._registry.list_nodes(projects)):
            job_filter = JobFilter(projects=projects, resource_groups=frozenset({group.id}), limit=0)
            if not self._registry.list_jobs(job_filter, self._clock.now_ms()).total:
                raise error
        return projects

    def _check_workspace(self, workspace: str, projects: frozenset[str] | None, scope: Scope) -> None:
        job_filter = JobFilter(projects=projects, workspaces=frozenset({workspace}), limit=0)
        if not list_permitted_jobs(self._registry, job_filter, scope, self._clock.now_ms()).total:
            raise NotFoundError(f"there is no workspace {workspace!r}", "workspace", workspace)

    def _views(self, group: GroupRef, projects: frozenset[str] | None, span: TimeRange) -> list[JobView]:
        """Find the jobs of the group in the range and in the day before its end."""
        around = TimeRange(max(0, min(span.start_ms, span.end_ms - _LOOK_BACK_MS)), span.end_ms)
        views = list(self._registry.group_jobs(projects, group.id, around, self._clock.now_ms()))
        if len(views) > MOST_JOBS:
            raise LimitExceededError(
                f"a question may cover {MOST_JOBS} jobs of a group, this one covers {len(views)}", "range"
            )
        return views

    def _members(self, group: GroupRef, projects: frozenset[str] | None, views: Sequence[JobView]) -> list[Node]:
        nodes = self._registry.list_nodes(projects)
        declared = [node for node in nodes if node.resource_group == group.id]
        if declared:
            return declared
        used = {(one.cluster, one.node) for view in views for one in view.replicas if one.node}
        used |= {(one.cluster, one.node) for view in views for one in view.allocations}
        names = {node for cluster, node in used if not cluster}
        listed = [node for node in nodes if (node.cluster, node.name) in used or node.name in names]
        there = {(node.cluster, node.name) for node in listed} | {("", node.name) for node in listed}
        unknown = [Node(name=name, cluster=cluster) for cluster, name in sorted(used - there)]
        return [node for node in listed if not node.resource_group] + unknown

    def _parts(
        self,
        views: Sequence[JobView],
        jobs: Sequence[Allocated],
        span: TimeRange,
        names: Sequence[str],
        projects: frozenset[str] | None,
        *,
        closed: bool = False,
    ) -> tuple[UsageParts, UsageReadings]:
        """Find the replicas of some jobs; ``jobs`` are the registry's allocations of ``views``."""
        shape = self._shape(views, span, names, projects)
        columns = read(shape, self._source, span, WHOLE_MS, Meter(self._clock, self._limits))
        readings = UsageReadings(BucketedSeries(shape, columns, {}))

        def earlier(some: Sequence[int], which: Sequence[str]) -> UsageReadings:
            return self._read_last([views[at] for at in some], span, which, projects)

        inventory = Inventory(self._registry.list_nodes(projects))
        return UsageParts(jobs, readings, inventory, earlier, closed=closed), readings

    def _read_last(
        self, views: Sequence[JobView], span: TimeRange, names: Sequence[str], projects: frozenset[str] | None
    ) -> UsageReadings:
        """Read metrics of jobs as last measured before the end of the span, of any age."""
        shape = self._shape(views, TimeRange(0, span.end_ms), names, projects)
        keys = SeriesKeys.from_series([entry.series for entry in shape.entries])
        last = self._source.read_previous(keys, span.end_ms, Meter(self._clock, self._limits))
        last = last.select(np.argsort(last.index))
        gauges = np.zeros(len(keys), np.bool_)
        return UsageReadings(
            BucketedSeries(shape, build_buckets(last, WHOLE_MS, gauges, References.make_empty(len(keys))), {})
        )

    def _shape(
        self, views: Sequence[JobView], span: TimeRange, names: Sequence[str], projects: frozenset[str] | None
    ) -> SelectedSeries:
        most = _SERIES * self._limits.query_series
        metrics = list_sources(find_metrics(names))
        nodes = partial(self._registry.list_nodes, projects)
        return SelectedSeries(
            selection.select_jobs(self._source.store, views, metrics, span, self._limits, nodes, most)
        )

    def _capacities(
        self, nodes: Sequence[Node], parts: UsageParts, projects: frozenset[str] | None, span: TimeRange
    ) -> dict[Place, Amounts]:
        """Determine the size of each node: by its record, else by measurement, else by the limits of its replicas.

        Without any node, the limits of replicas without a node.
        """
        sizes = self._sizes([node for node in nodes if not {"cores", "memory"} <= node.info.keys()], projects, span)
        found: dict[Place, Amounts] = {}
        left = _Left(parts)
        machines = group_pairs(((node.cluster, node.name), node) for node in nodes)
        for place, same in (machines or {_NOWHERE: []}).items():
            info = {name: value for node in same for name, value in node.info.items()}
            allowed = left.take(place)
            types = _devices(info, allowed)
            found[place] = Amounts(
                cpu=_find_positive(info.get("cores"), sizes.get((*place, _SIZES[0])), allowed.cpu),
                memory=_find_positive(info.get("memory"), sizes.get((*place, _SIZES[1])), allowed.memory),
                devices=sum(types.values()),
                device_types=dict(types),
            )
        return found

    def _sizes(
        self, nodes: Sequence[Node], projects: frozenset[str] | None, span: TimeRange
    ) -> Mapping[tuple[str, str, str], float]:
        """Read the last measured size of each node, by (cluster, node, metric)."""
        if not nodes:
            return {}
        selector = SeriesSelector(
            projects=projects,
            nodes=tuple({(node.cluster, node.name) for node in nodes}),
            metrics=frozenset(_SIZES),
            limit=_SERIES * self._limits.query_series,
        )
        found = self._source.store.find(selector)
        meter = Meter(self._clock, self._limits)
        last = self._source.read_previous(SeriesKeys.from_series(found), span.end_ms, meter)
        series = [found[at] for at in last.index.tolist()]
        return {
            (one.cluster, one.node, one.metric): value for one, value in zip(series, last.value.tolist(), strict=True)
        }


class _Left:
    """Limits of replicas by node, until taken."""

    def __init__(self, parts: UsageParts) -> None:
        self._parts = parts
        self._rows: dict[str, list[int]] = {}
        for number, (_, node) in enumerate(parts.places):
            self._rows.setdefault(node, []).append(number)
        self._devices: dict[str, dict[str, str]] = {}
        for one in parts.jobs:
            kind = one.job.instance_type
            for node, device in one.devices:
                self._devices.setdefault(node, {})[device] = "" if kind is None else kind.gpu_type

    def take(self, place: Place) -> Amounts:
        """Take the limits of the replicas on a node, and the devices that jobs have there."""
        rows, types = self._rows.pop(place[1], []), Counter(self._devices.pop(place[1], {}).values())
        cpu, memory = (
            float(np.nansum(column[rows])) if rows else 0.0 for column in (self._parts.cpu, self._parts.memory)
        )
        return Amounts(cpu=cpu, memory=memory, devices=types.total(), device_types=dict(types))


def _devices(info: Mapping[str, Any], allowed: Amounts) -> Mapping[str, int]:
    """Count devices by type: as the node's record states, or as many as jobs have there if more."""
    types = Counter(list_device_types(info))
    if not types:
        return allowed.device_types
    if allowed.devices > types.total():
        types[""] += allowed.devices - types.total()
    return types


def _find_positive(*values: Any) -> float:  # noqa: ANN401 - a client may have written anything
    """Return the first number above zero; 0 without one."""
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
            return float(value)
    return 0.0
