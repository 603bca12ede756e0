"""Metrics of a whole node, over all its users."""

from functools import partial
from typing import Unpack

from jobmeter.model.catalog.metric import (
    NO_NAMES,
    Display,
    Kind,
    Metric,
    MetricGroup,
    MetricScope,
    Presentation,
    utilization,
)

_N = MetricScope.NODE
_gauge = partial(Metric, scope=_N, group=MetricGroup.NODE, views=Display.HIDDEN)


def _counter(
    name: str,
    unit: str,
    text: str,
    read_unit: str = "",
    studio: str = "",
    **presentation: Unpack[Presentation],
) -> Metric:
    names = {"pai-studio-nodes": studio} if studio else NO_NAMES
    return _gauge(name, unit, text, kind=Kind.COUNTER, read_unit=read_unit, names=names, **presentation)


def _utilization(part: str, whole: str, text: str, studio: str, title: str) -> Metric:
    return utilization(
        f"node.{part}",
        text,
        _N,
        whole,
        minimum=-0.05,
        names={"pai-studio-nodes": studio},
        group=MetricGroup.NODE,
        title=title,
        views=Display.NODE,
    )


METRICS: tuple[Metric, ...] = (
    _counter(
        "node.cpu.time", "s", "CPU time by mode: user, nice, system, idle, iowait, irq, softirq, steal.", "{core}"
    ),
    _gauge(
        "node.cpu.usage",
        "{core}",
        "CPUs in use: neither idle nor waiting for a device.",
        title="CPU in use",
        rate_of="node.cpu.time",
        rate_but=(("mode", "idle"), ("mode", "iowait")),
    ),
    _utilization("cpu", "node.cpu.count", "CPUs in use over CPUs that are online.", "CpuUsageRate", title="CPU in use"),
    _gauge("node.cpu.count", "{core}", "Logical CPUs that are online."),
    _gauge("node.load1", "", "Runnable tasks, averaged over 1 minute.", title="Load, 1 minute", views=Display.NODE),
    _gauge("node.load5", "", "Runnable tasks, averaged over 5 minutes."),
    _gauge("node.load15", "", "Runnable tasks, averaged over 15 minutes."),
    _gauge("node.processes.running", "{process}", "Processes that run or could run."),
    _gauge("node.processes.blocked", "{process}", "Processes that wait for a device."),
    _gauge(
        "node.memory.usage",
        "By",
        "Memory that is not available to a new program.",
        title="Memory in use",
        difference=("node.memory.total", "node.memory.available"),
    ),
    _utilization(
        "memory", "node.memory.total", "Memory in use over total memory.", "MemoryUsageRate", title="Memory in use"
    ),
    _gauge("node.memory.total", "By", "Memory there is."),
    _gauge("node.memory.available", "By", "Memory available to a new program without swapping."),
    _gauge("node.memory.free", "By", "Unused memory."),
    _gauge("node.memory.cached", "By", "Memory that holds file contents."),
    _gauge("node.memory.dirty", "By", "File contents waiting to be written."),
    _gauge("node.memory.slab", "By", "Memory that the kernel's own objects take."),
    _gauge("node.swap.total", "By", "Swap there is."),
    _gauge("node.swap.free", "By", "Unused swap."),
    _counter("node.swap.in", "By", "Bytes read back from swap."),
    _counter("node.swap.out", "By", "Bytes written to swap."),
    _counter("node.memory.major.faults", "{fault}", "Page faults that had to read from storage."),
    _counter("node.memory.oom.kills", "{process}", "Processes killed because memory ran out."),
    _counter(
        "node.pressure.cpu",
        "s",
        "Time in which some task waited for a CPU.",
        read_unit="1",
        phrase="time of waiting for a CPU",
    ),
    _counter(
        "node.pressure.memory",
        "s",
        "Time in which some task waited for memory.",
        read_unit="1",
        phrase="time of waiting for memory",
    ),
    _counter(
        "node.pressure.io",
        "s",
        "Time in which some task waited for storage.",
        read_unit="1",
        phrase="time of waiting for storage",
    ),
    _counter(
        "node.pressure.memory.full",
        "s",
        "Time in which all tasks waited for memory at once.",
        read_unit="1",
        phrase="time of nothing but waiting for memory",
    ),
    _counter(
        "node.pressure.io.full",
        "s",
        "Time in which all tasks waited for storage at once.",
        read_unit="1",
        phrase="time of nothing but waiting for storage",
    ),
    _counter(
        "node.disk.read",
        "By",
        "Bytes read by whole disks, by disk.",
        studio="DiskReadRate",
        title="Read from disks",
        phrase="bytes read",
        views=Display.NODE,
    ),
    _counter(
        "node.disk.write",
        "By",
        "Bytes written by whole disks, by disk.",
        studio="DiskWriteRate",
        title="Written to disks",
        phrase="bytes written",
        views=Display.NODE,
    ),
    _counter("node.disk.time", "s", "Time in which a disk was busy, by disk.", read_unit="1"),
    _counter(
        "node.network.receive",
        "By",
        "Bytes received, by interface.",
        studio="NetworkInputRate",
        title="Received",
        phrase="network traffic received",
        views=Display.NODE,
    ),
    _counter(
        "node.network.transmit",
        "By",
        "Bytes sent, by interface.",
        studio="NetworkOutputRate",
        title="Sent",
        phrase="network traffic sent",
        views=Display.NODE,
    ),
    _counter("node.network.errors", "{packet}", "Packets lost to errors, by interface and direction."),
    _counter("node.network.dropped", "{packet}", "Packets dropped, by interface and direction."),
    _counter("node.network.packets", "{packet}", "Packets received and sent, by interface and direction."),
    _gauge("node.network.speed", "By/s", "Bytes a second that a link carries in each direction, by interface."),
    _counter("node.tcp.sent", "{segment}", "TCP segments sent, retransmitted ones not included."),
    _counter("node.tcp.retransmitted", "{segment}", "TCP segments sent again."),
    _counter("node.rdma.receive", "By", "Bytes received over InfiniBand or RoCE, by port."),
    _counter("node.rdma.transmit", "By", "Bytes sent over InfiniBand or RoCE, by port."),
    _gauge("node.rdma.speed", "By/s", "Bytes a second that an InfiniBand or RoCE port carries, by port."),
    _counter("node.rdma.wait", "{tick}", "Ticks in which a port had data and no credit to send it, by port."),
    _counter("node.rdma.link.down", "{event}", "Times that the link of a port failed, by port."),
    _counter("node.rdma.congestion", "{event}", "Congestion marks and notifications, by port and counter."),
    _counter("node.rdma.retransmits", "{event}", "Causes and counts of retransmissions, by port and counter."),
    _counter("node.rdma.errors", "{error}", "Errors and discarded packets, by port and counter."),
    _counter("node.network.carrier", "{event}", "Times that a link came up or went down, by interface."),
    _gauge("node.filesystem.size", "By", "Size of a filesystem, by mount point."),
    _gauge("node.filesystem.available", "By", "Space that a user may still fill, by mount point."),
)
