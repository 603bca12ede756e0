"""Machines, as the Collector's host metrics receiver and the SDKs' system metrics measure them.

https://opentelemetry.io/docs/specs/semconv/system/system-metrics/ and
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/receiver/hostmetricsreceiver
"""

import re
from collections.abc import Mapping, Sequence

from jobmeter.ingest.exporters.node import RULES as _NODE_EXPORTER
from jobmeter.ingest.otel.rule import CPU, DEVICE, DIRECTION, INTERFACE, MODE, MOUNT, STATE, Rule, Subject

_PLAIN = {
    "system.cpu.logical.count": "node.cpu.count",
    "system.cpu.load_average.1m": "node.load1",
    "system.cpu.load_average.5m": "node.load5",
    "system.cpu.load_average.15m": "node.load15",
    "system.memory.limit": "node.memory.total",
    "system.linux.memory.available": "node.memory.available",
    "system.memory.linux.available": "node.memory.available",
}
# As for node_exporter: partitions and virtual interfaces would count the same bytes twice.
_WHOLE_DISK = _NODE_EXPORTER["node_disk_read_bytes_total"][0].only["device"]
_WIRE = _NODE_EXPORTER["node_network_receive_bytes_total"][0].only["device"]
_NETWORK = {"receive": "node.network.receive", "transmit": "node.network.transmit"}
_DISKS = {"read": "node.disk.read", "write": "node.disk.write"}


def _is(value: str) -> re.Pattern[str]:
    return re.compile(re.escape(value))


def _lost(metric: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            metric=metric,
            subject=Subject.NODE,
            keep={INTERFACE: "interface"},
            fixed=(("direction", direction),),
            only={INTERFACE: _WIRE, DIRECTION: _is(direction)},
        )
        for direction in _NETWORK
    )


def _by_state(states: Mapping[str, str], keep: Mapping[str, str] | None = None) -> tuple[Rule, ...]:
    return tuple(
        Rule(metric=ours, subject=Subject.NODE, keep=keep or {}, only={STATE: _is(state)})
        for state, ours in states.items()
    )


_SLAB = Rule(metric="node.memory.slab", subject=Subject.NODE, keep={STATE: "state"})
_DROPPED, _FILESYSTEM = _lost("node.network.dropped"), {MOUNT: "mount"}

RULES: Mapping[str, Sequence[Rule]] = {
    **{theirs: (Rule(metric=ours, subject=Subject.NODE),) for theirs, ours in _PLAIN.items()},
    "system.cpu.time": (Rule(metric="node.cpu.time", subject=Subject.NODE, keep={MODE: "mode", CPU: "cpu"}),),
    "system.memory.usage": (
        *_by_state({"free": "node.memory.free", "cached": "node.memory.cached"}),
        Rule(
            metric="node.memory.slab",
            subject=Subject.NODE,
            keep={STATE: "state"},
            only={STATE: re.compile("slab_(?:un)?reclaimable")},
        ),
    ),
    "system.linux.memory.slab.usage": (_SLAB,),
    "system.memory.linux.slab.usage": (_SLAB,),
    "system.paging.usage": _by_state({"free": "node.swap.free"}, {DEVICE: "device"}),
    "system.paging.faults": (
        Rule(metric="node.memory.major.faults", subject=Subject.NODE, only={"fault": _is("major")}),
    ),
    "system.processes.count": _by_state({"running": "node.processes.running", "blocked": "node.processes.blocked"}),
    "system.disk.io": tuple(
        Rule(
            metric=ours,
            subject=Subject.NODE,
            keep={DEVICE: "disk"},
            only={DEVICE: _WHOLE_DISK, DIRECTION: _is(direction)},
        )
        for direction, ours in _DISKS.items()
    ),
    "system.disk.io_time": (
        Rule(metric="node.disk.time", subject=Subject.NODE, keep={DEVICE: "disk"}, only={DEVICE: _WHOLE_DISK}),
    ),
    "system.network.io": tuple(
        Rule(
            metric=ours,
            subject=Subject.NODE,
            keep={INTERFACE: "interface"},
            only={INTERFACE: _WIRE, DIRECTION: _is(direction)},
        )
        for direction, ours in _NETWORK.items()
    ),
    "system.network.errors": _lost("node.network.errors"),
    "system.network.dropped": _DROPPED,
    "system.network.packet.dropped": _DROPPED,
    "system.filesystem.usage": _by_state({"free": "node.filesystem.available"}, _FILESYSTEM),
    "system.filesystem.limit": (Rule(metric="node.filesystem.size", subject=Subject.NODE, keep=_FILESYSTEM),),
}
