"""Faults of nodes and their devices: what agents reported lately, since when, and which jobs had the device.

A fault is an error of the hardware (an XID, memory errors that were not corrected, a lost device, a disk), a link that
went down, or heat that slows a device. It lasts for ``LASTING_MS`` after its last report, or until the node is started
again, the device is back, or the heat is gone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.event import GPU_BACK, GPU_NOT_PERMITTED, Event, EventFilter, EventType, Level
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Condition, Job, JobFilter, JobView, Node, Operator
from jobmeter.model.time import DAY, MINUTE, TimeRange
from jobmeter.model.xid import read_xid
from jobmeter.query.inventory import map_device_addresses
from jobmeter.query.permitted import list_permitted_jobs
from jobmeter.registry.base import Registry

LASTING_MS = DAY
MOST_EVENTS, MOST_JOBS, MOST_FAULTS = 2_000, 500, 32
"""Events and jobs that are read, and faults of one node: the newest of each."""
_LONGEST = 300
_HOT, _COOL = "DeviceThrottled", "DeviceThrottlingEnded"
_ENDED_BY = {"GpuLost": GPU_BACK, "DeviceHangs": GPU_BACK, "DeviceLost": GPU_BACK, _HOT: _COOL}
"""The reasons of events that end a fault of the same device."""
_TYPES = frozenset({EventType.DEVICE_FAULT, EventType.THROTTLING})

Place = tuple[str, str]
"""A node (cluster, name)."""


class NodeFault(msgspec.Struct, frozen=True):
    """A fault of a node, or of one of its devices: from the first report to the last one (epoch ms).

    ``text`` is a sentence. ``jobs`` had the device then, or were on the node, as far as the caller may see them.
    """

    device: str
    reason: str
    text: str
    start: int
    last: int
    count: int
    jobs: tuple[Job, ...] = ()


def read_node_faults(
    registry: Registry, nodes: Sequence[Node], projects: frozenset[str] | None, scope: Scope, now_ms: int
) -> Mapping[Place, list[NodeFault]]:
    """Return the faults of each faulty node, the newest first."""
    question = EventFilter(
        projects=projects,
        types=_TYPES,
        start=now_ms - LASTING_MS,
        descending=True,
        limit=MOST_EVENTS,
    )
    events = list(reversed(registry.list_events(question).events))
    found = _group_by_node(nodes, events)
    if not found:
        return {}
    views = _views(registry, found, projects, scope, now_ms)
    return {place: [_add_jobs(one, place, views) for one in own] for place, own in found.items()}


def _group_by_node(nodes: Sequence[Node], events: Sequence[Event]) -> dict[Place, list[NodeFault]]:
    by_name = group_pairs((node.name, node) for node in nodes)
    reported: dict[Place, list[Event]] = {}
    known: dict[Place, Node] = {}
    for event in events:
        own = [one for one in by_name.get(event.node, ()) if not event.cluster or one.cluster == event.cluster]
        # A node of that name in several clusters: nobody can say which one is meant.
        if len(own) == 1:
            place = own[0].cluster, own[0].name
            known[place] = own[0]
            reported.setdefault(place, []).append(event)
    faults = {place: list(_faults(known[place], own)) for place, own in reported.items()}
    return {
        place: sorted(own, key=lambda one: one.last, reverse=True)[:MOST_FAULTS] for place, own in faults.items() if own
    }


def _faults(node: Node, events: Iterable[Event]) -> Iterator[NodeFault]:
    """Yield the lasting faults of a node from its events in order of time."""
    booted = node.info.get("booted")
    addresses = map_device_addresses(node.info)
    lasting: dict[tuple[str, str], dict[int, Event]] = {}
    for event in events:
        if isinstance(booted, int) and event.time < booted:
            continue
        device, kind = _device(event, addresses), _kind(event)
        for reason in [one for one, end in _ENDED_BY.items() if end == event.reason]:
            lasting.pop((device, reason), None)
        if kind:
            # Agents of several projects report one event of a node each: one event a time counts.
            lasting.setdefault((device, kind), {}).setdefault(event.time, event)
    for (device, _), by_time in lasting.items():
        own = list(by_time.values())
        yield NodeFault(device, own[0].reason, _text(own[-1]), own[0].time, own[-1].time, len(own))


def _kind(event: Event) -> str:
    """Return the reason of a fault, with the code of an XID; empty for any other event."""
    if event.type is EventType.THROTTLING:
        return event.reason if event.reason == _HOT else ""
    if event.level is not Level.ERROR or event.reason in {GPU_BACK, GPU_NOT_PERMITTED}:
        return ""
    xid = read_xid(event.message) if event.reason == "Xid" else None
    return f"Xid {xid.code}" if xid else event.reason


def _device(event: Event, addresses: Mapping[str, str]) -> str:
    """Return the name of the device of an event, or its address if no agent has named the device."""
    kind, _, name = event.subject.partition(" ")
    if kind != "device":
        return ""
    address = normalize_pci_address(name)
    return addresses.get(address, address) if address else name


def _text(event: Event) -> str:
    xid = read_xid(event.message) if event.reason == "Xid" else None
    return f"XID {xid.code}: {xid.meaning.text}" if xid else (event.message or event.reason)[:_LONGEST]


def _views(
    registry: Registry,
    found: Mapping[Place, Sequence[NodeFault]],
    projects: frozenset[str] | None,
    scope: Scope,
    now_ms: int,
) -> Sequence[JobView]:
    """Return the jobs on these nodes that the caller may see."""
    names = tuple(sorted({name for _, name in found}))[:MOST_JOBS]
    question = JobFilter(projects=projects, conditions=(Condition("node", Operator.IN, names),), limit=MOST_JOBS)
    page = list_permitted_jobs(registry, question, scope, now_ms)
    first = min(one.start for own in found.values() for one in own)
    span = TimeRange(max(0, min(first, now_ms) - MINUTE), now_ms + 1)
    return registry.list_job_views([(job.project, job.id) for job in page.jobs], span, now_ms)


def _add_jobs(one: NodeFault, place: Place, views: Iterable[JobView]) -> NodeFault:
    jobs = tuple(view.job for view in views if _had_device(view, place, one))
    return msgspec.structs.replace(one, jobs=jobs)


def _had_device(view: JobView, place: Place, one: NodeFault) -> bool:
    """Return True for a job that had the device at the first report. Without a device: that was on the node."""
    cluster, node = place
    own = [each for each in view.allocations if each.node == node and each.cluster in ("", cluster)]
    named = [each for each in own if each.device == one.device]
    if named or (
        own and one.device and not normalize_pci_address(one.device) and one.device.startswith(("gpu", "npu"))
    ):
        return any(each.start <= one.start and (each.end is None or one.start <= each.end + MINUTE) for each in named)
    ends = ((replica, view.job.end if replica.end is None else replica.end) for replica in view.replicas)
    return any(
        replica.node == node
        and (replica.start is None or replica.start <= one.start)
        and (end is None or one.start <= end + MINUTE)
        for replica, end in ends
    )
