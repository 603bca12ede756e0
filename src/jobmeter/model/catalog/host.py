"""Metrics of a whole node, over all its users."""

from functools import partial
from typing import Unpack

from jobmeter.model.catalog.metric import (
    NO_NAMES,
    Aggregate,
    Display,
    Kind,
    Metric,
    MetricScope,
    Presentation,
    make_utilization,
)

_N = MetricScope.NODE
_gauge = partial(Metric, scope=_N, views=Display.HIDDEN)


def _counter(
    name: str, unit: str, text: str, read_unit: str = "", studio: str = "", **presentation: Unpack[Presentation]
) -> Metric:
    names = {"pai-studio-nodes": studio} if studio else NO_NAMES
    return _gauge(name, unit, text, kind=Kind.COUNTER, read_unit=read_unit, names=names, **presentation)


def _utilization(part: str, whole: str, text: str, studio: str, title: str) -> Metric:
    return make_utilization(
        f"node.{part}",
        text,
        _N,
        whole,
        minimum=-0.05,
        names={"pai-studio-nodes": studio},
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
    _gauge("node.memory.total", "By", "Total memory."),
    _gauge("node.memory.available", "By", "Memory available to a new program without swapping."),
    _gauge("node.memory.free", "By", "Unused memory."),
    _gauge("node.memory.cached", "By", "Memory that holds file contents."),
    _gauge("node.memory.dirty", "By", "File contents waiting to be written."),
    _gauge("node.memory.slab", "By", "Memory that the kernel's own objects take."),
    _gauge("node.memory.buffers", "By", "Memory that holds blocks of devices."),
    _gauge("node.memory.anonymous", "By", "Memory of programs that no file backs, without shared memory."),
    _gauge("node.memory.mapped", "By", "File contents that programs have mapped."),
    _gauge("node.memory.shared", "By", "Shared memory and files in memory; a part of node.memory.cached."),
    _gauge("node.memory.page.tables", "By", "Memory that page tables take."),
    _gauge("node.memory.kernel.stacks", "By", "Memory that the kernel's stacks of threads take."),
    _gauge("node.memory.writeback", "By", "File contents that are being written."),
    _gauge("node.memory.committed", "By", "Memory that programs have asked for, whether they use it or not."),
    _gauge("node.memory.unevictable", "By", "Memory that the kernel may not reclaim, such as locked memory."),
    _gauge("node.memory.huge", "By", "Memory that is set aside as huge pages of all sizes."),
    _gauge("node.memory.huge.free", "By", "Huge pages of the default size that are free."),
    _gauge("node.swap.total", "By", "Total swap."),
    _gauge("node.swap.free", "By", "Unused swap."),
    _counter("node.swap.in", "By", "Bytes read back from swap."),
    _counter("node.swap.out", "By", "Bytes written to swap."),
    _counter("node.memory.faults", "{fault}", "Page faults."),
    _counter("node.memory.major.faults", "{fault}", "Page faults that had to read from storage."),
    _counter("node.memory.stalls", "{event}", "Allocations that had to free memory first."),
    _counter("node.memory.oom.kills", "{process}", "Processes killed because memory ran out."),
    _counter(
        "node.memory.errors", "{error}", "Errors of memory modules, by controller and kind.", title="Memory errors"
    ),
    _gauge("node.numa.memory.total", "By", "Memory of a NUMA node."),
    _gauge("node.numa.memory.free", "By", "Unused memory of a NUMA node."),
    _counter("node.numa.hit", "{page}", "Pages allocated on the NUMA node that was wanted, by node."),
    _counter("node.numa.miss", "{page}", "Pages allocated on a NUMA node because another one was full, by node."),
    _counter("node.numa.foreign", "{page}", "Pages wanted on a NUMA node and allocated on another one, by node."),
    _counter("node.numa.remote", "{page}", "Pages of a NUMA node allocated by CPUs of another one, by node."),
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
    _counter("node.disk.operations", "{operation}", "Operations that a disk finished, by disk and direction."),
    _counter(
        "node.disk.operation.time",
        "s",
        "Time that operations took, waiting included, by disk and direction; more than 1 if many run at once.",
        read_unit="{operation}",
    ),
    _gauge("node.disk.queue", "{operation}", "Operations under way, by disk."),
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
    _gauge("node.filesystem.files", "{file}", "Files that a filesystem can hold, by mount point."),
    _gauge("node.filesystem.files.free", "{file}", "Files that a user may still create, by mount point."),
    _gauge("node.filesystem.read.only", "", "1 if a filesystem can only be read, by mount point.", parts=Aggregate.MAX),
    _gauge("node.filesystem.hangs", "", "1 while a filesystem does not answer, by mount point.", parts=Aggregate.MAX),
    _counter("node.nfs.read", "By", "Bytes read from NFS servers, by mount point."),
    _counter("node.nfs.write", "By", "Bytes written to NFS servers, by mount point."),
    _counter("node.nfs.operations", "{operation}", "Requests to NFS servers, by mount point and operation."),
    _counter("node.nfs.retransmits", "{event}", "Requests that were sent to NFS servers again, by mount point."),
    _counter("node.nfs.timeouts", "{event}", "Major time-outs of NFS servers, by mount point."),
    _counter(
        "node.nfs.time",
        "s",
        "Time that requests to NFS servers took, waiting included, by mount point and operation.",
        read_unit="{operation}",
    ),
    _counter("node.lustre.read", "By", "Bytes read from Lustre, by filesystem or target."),
    _counter("node.lustre.write", "By", "Bytes written to Lustre, by filesystem or target."),
    _counter("node.lustre.operations", "{operation}", "Operations of Lustre, by filesystem or target and operation."),
    _counter(
        "node.energy",
        "J",
        "Energy by kind (cpu, memory, accelerator, node, module) and source. Sources of one kind measure the same "
        "energy. Energy of kind module is a part of the accelerators' energy.",
        read_unit="W",
        title="Power, by energy",
        phrase="energy of the node",
        views=Display.NODE,
    ),
    _counter(
        "node.energy.unattributed",
        "J",
        "Measured energy that belongs to no job, by kind: gpu, cpu, memory, rest.",
        read_unit="W",
        title="Power of no job",
        phrase="power of no job",
        views=Display.NODE,
    ),
    _gauge("node.power", "W", "Power of the whole node, by source.", parts=Aggregate.MAX, title="Power"),
    _gauge(
        "node.power.idle",
        "W",
        "Power while no job has a part of the node, by meter; the part below it is divided by allocation.",
    ),
    _gauge("node.temperature", "Cel", "Temperature, by chip and sensor.", minimum=None, parts=Aggregate.MAX),
    _gauge("node.fan.speed", "{rpm}", "Speed of a fan, by chip and sensor.", parts=Aggregate.MEAN),
    _gauge("node.sensor.power", "W", "Power that a sensor measures, by chip and sensor.", parts=Aggregate.MAX),
    _counter("node.cpu.throttled", "{event}", "Times that a CPU was slowed down because of its heat, by package."),
)
