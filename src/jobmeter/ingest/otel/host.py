"""Machines, as the Collector's host metrics receiver and the SDKs' system metrics measure them.

https://opentelemetry.io/docs/specs/semconv/system/system-metrics/ and
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/receiver/hostmetricsreceiver
"""

from dataclasses import replace

from jobmeter.ingest.exporters import node
from jobmeter.ingest.otel.attributes import CPU, DEVICE, DIRECTION, INTERFACE, MODE, MOUNT, STATE
from jobmeter.ingest.rule import Rules, RuleTarget, TranslationRule, make_table, split

_PLAIN = {
    "system.cpu.logical.count": "node.cpu.count",
    "system.cpu.load_average.1m": "node.load1",
    "system.cpu.load_average.5m": "node.load5",
    "system.cpu.load_average.15m": "node.load15",
    "system.memory.limit": "node.memory.total",
    "system.linux.memory.available": "node.memory.available",
    "system.memory.linux.available": "node.memory.available",
}
# Partitions and virtual interfaces would count the same bytes twice, as with node_exporter.
_WHOLE_DISK = {DEVICE: node.WHOLE_DISK}
_WIRE = {INTERFACE: node.WIRE}
_NETWORK = {"receive": "node.network.receive", "transmit": "node.network.transmit"}
_DISKS = {"read": "node.disk.read", "write": "node.disk.write"}
_DISK, _INTERFACE, _FILESYSTEM = {DEVICE: "disk"}, {INTERFACE: "interface"}, {MOUNT: "mount"}


def _packets(metric: str) -> tuple[TranslationRule, ...]:
    return tuple(
        replace(rule, metric=metric, fixed=(("direction", direction),))
        for rule, direction in zip(
            split(RuleTarget.NODE, DIRECTION, _NETWORK, _INTERFACE, _WIRE), _NETWORK, strict=True
        )
    )


_SLABS = {"system.linux.memory.slab.usage": "node.memory.slab", "system.memory.linux.slab.usage": "node.memory.slab"}
_MEMORY = {"free": "node.memory.free", "cached": "node.memory.cached"}
_SLAB = {"slab_(?:un)?reclaimable": "node.memory.slab"}
_PROCESSES = {"running": "node.processes.running", "blocked": "node.processes.blocked"}
_AVAILABLE = {"free": "node.filesystem.available"}

RULES: Rules = {
    **make_table(RuleTarget.NODE, _PLAIN),
    **make_table(RuleTarget.NODE, {"system.cpu.time": "node.cpu.time"}, {MODE: "mode", CPU: "cpu"}),
    "system.memory.usage": (
        *split(RuleTarget.NODE, STATE, _MEMORY),
        *split(RuleTarget.NODE, STATE, _SLAB, {STATE: "state"}),
    ),
    **make_table(RuleTarget.NODE, _SLABS, {STATE: "state"}),
    "system.paging.usage": split(RuleTarget.NODE, STATE, {"free": "node.swap.free"}, {DEVICE: "device"}),
    "system.paging.faults": split(RuleTarget.NODE, "fault", {"major": "node.memory.major.faults"}),
    "system.processes.count": split(RuleTarget.NODE, STATE, _PROCESSES),
    "system.disk.io": split(RuleTarget.NODE, DIRECTION, _DISKS, _DISK, _WHOLE_DISK),
    **make_table(RuleTarget.NODE, {"system.disk.io_time": "node.disk.time"}, _DISK, _WHOLE_DISK),
    "system.network.io": split(RuleTarget.NODE, DIRECTION, _NETWORK, _INTERFACE, _WIRE),
    "system.network.errors": _packets("node.network.errors"),
    "system.network.packets": _packets("node.network.packets"),
    "system.network.dropped": _packets("node.network.dropped"),
    "system.network.packet.dropped": _packets("node.network.dropped"),
    "system.filesystem.usage": split(RuleTarget.NODE, STATE, _AVAILABLE, _FILESYSTEM),
    **make_table(RuleTarget.NODE, {"system.filesystem.limit": "node.filesystem.size"}, _FILESYSTEM),
}
