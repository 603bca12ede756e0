"""Metrics of the nodes of a job while it ran there, part by part (mount points)."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Addresses, Signals
from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import BucketColumns, Float64s
from jobmeter.model.catalog import CATALOG, Kind
from jobmeter.model.device import find_addresses
from jobmeter.model.event import Event
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobView
from jobmeter.model.log import LogLine
from jobmeter.model.series import NO_JOB, Series
from jobmeter.model.time import MAX_TIME_MS, MINUTE, SECOND, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.gaps import Presence
from jobmeter.query.inventory import map_device_addresses
from jobmeter.query.nodes import NodesQuestion
from jobmeter.query.reduce import compute_growth
from jobmeter.query.series import BucketsQuestion, SeriesQuestion

MOST_NODES = 64
"""Most nodes of a job that are read; nodes of failed replicas come first."""
_CPU = "cpu"
"""Label of series of single CPUs, which are too many to be read."""
_PARTS = ("mountpoint", "mount", "device", "disk", "interface", "mode")


def read_signals_of_nodes(
    executor: Executor, scope: Scope, view: JobView, names: Sequence[str], span: TimeRange, step_ms: int
) -> Signals:
    """Read gauges (means) and counters (rates) of a job's nodes, in two questions.

    Empty for a caller that may only see the job.
    """
    nodes = list_nodes(view)
    if not nodes or not names or scope.job is not None or scope.grant is not None:
        return {}
    found = read_node_signals(executor, scope, nodes, names, span, step_ms)
    return group_pairs((signal.metric, signal) for series, signal in found if series.project == view.job.project)


def read_node_signals(
    executor: Executor,
    scope: Scope,
    nodes: Sequence[tuple[str, str]],
    names: Sequence[str],
    span: TimeRange,
    step_ms: int,
) -> Iterator[tuple[Series, Signal]]:
    """Return the signals of any nodes, (cluster, node), each with its series."""
    question = SeriesQuestion(metrics=frozenset(names), jobs=(NO_JOB,), nodes=tuple(nodes))
    own = [one for one in executor.run(question, scope).series if not any(name == _CPU for name, _ in one.labels)]
    if not own:
        return
    columns = executor.run(BucketsQuestion(series=tuple(own), range=span, step_ms=step_ms), scope).columns
    bounds = np.searchsorted(columns.index, np.arange(len(own) + 1)).tolist()
    known: dict[bytes, Presence] = {}
    for at, series in enumerate(own):
        presence, value = _values(series, columns, slice(bounds[at], bounds[at + 1]))
        if len(value):
            presence = known.setdefault(presence.key, presence)  # most series of a node were sampled alike
            signal = Signal(
                series.metric, presence.first, value, node=series.node, device=series.device, part=_part(series)
            )
            yield series, signal.with_ends(presence.until)


def list_nodes(view: JobView) -> tuple[tuple[str, str], ...]:
    """Return the job's nodes, (cluster, node): 64 at most."""
    ordered = sorted(view.replicas, key=lambda replica: not replica.exit_code)
    return tuple(dict.fromkeys((replica.cluster, replica.node) for replica in ordered if replica.node))[:MOST_NODES]


def read_addresses(executor: Executor, scope: Scope, reports: Iterable[tuple[str, str]]) -> Addresses:
    """Map PCI addresses to devices, for the nodes of reports (node, text) whose texts name an address.

    Asks one question, or none. An address is left out if it means two devices: of nodes with the same name in two
    clusters.
    """
    nodes = frozenset(node for node, text in reports if node and find_addresses(text))
    if not nodes:
        return {}
    found: dict[tuple[str, str], set[str]] = {}
    for one in executor.run(NodesQuestion(names=nodes), scope):
        for address, device in map_device_addresses(one.node.info).items():
            found.setdefault((one.node.name, address), set()).add(device)
    return {key: names.pop() for key, names in found.items() if len(names) == 1}


def find_reported_places(lines: Iterable[LogLine], events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """Yield the node and the text of each report."""
    yield from ((line.node or line.replica, line.text) for line in lines)
    yield from ((event.node or event.replica, event.message) for event in events)


def select_faults(view: JobView, events: Sequence[Event]) -> list[Event]:
    """Return the events of nodes that happened while the job had a device there, or a moment after."""
    spans = group_pairs(
        (one.node, (one.start, MAX_TIME_MS if one.end is None else one.end + MINUTE)) for one in view.allocations
    )
    return [
        event
        for event in events
        if not event.job and any(start <= event.time <= end for start, end in spans.get(event.node, ()))
    ]


def _values(series: Series, columns: BucketColumns, rows: slice) -> tuple[Presence, Float64s]:
    """Return the values of a series (rates for a counter) and the times of their samples."""
    first, last = columns.first_time[rows], columns.last_time[rows]
    presence = Presence(first, last, columns.count[rows].astype(np.int64))
    if CATALOG[series.metric].kind is not Kind.COUNTER:
        return presence, columns.sum[rows] / columns.count[rows]
    grown = compute_growth(columns.last[rows][:-1], columns.last[rows][1:])
    rest = Presence(first[1:], last[1:], presence.count[1:])
    return rest, grown / np.maximum(np.diff(last) / SECOND, 1e-3)


def _part(series: Series) -> str:
    labels = dict(series.labels)
    part = next((labels[name] for name in _PARTS if name in labels), "")
    return f"{part} {labels['direction']}" if "direction" in labels else part
