"""The shape of one row of a table of OpenTelemetry's conventions, and attributes under one name each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Subject(Enum):
    """What a metric is of, and so what it needs to be one of the catalogue's."""

    NODE = "node"
    """A machine: the resource names it."""
    REPLICA = "replica"
    """A container or a pod: the resource names it, and its job where it has one."""
    GPU = "gpu"
    """A GPU: ``hw.id`` names it, the resource its machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One metric of theirs as one of ours, which has the same unit.

    ``keep`` maps names of attributes (of the data point, then of the resource) to our labels; all others are left out.
    ``fixed`` labels are added. A series fits when each attribute of ``only`` (absent: empty) matches.
    """

    metric: str
    subject: Subject
    keep: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[tuple[str, str], ...] = ()
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def fits(self, attributes: Mapping[str, str]) -> bool:
        """Whether a series of the metric is meant."""
        return all(pattern.fullmatch(attributes.get(name, "")) for name, pattern in self.only.items())


MODE, CPU, STATE, DIRECTION, DEVICE, INTERFACE, MOUNT = (
    "mode",
    "cpu",
    "state",
    "direction",
    "device",
    "interface",
    "mount",
)
"""What an attribute is called in rules."""
_ALIKE: Mapping[str, tuple[str, ...]] = {
    MODE: ("cpu.mode", "system.cpu.state", "container.cpu.state", "state"),
    CPU: ("cpu.logical_number", "system.cpu.logical_number", "cpu"),
    STATE: (
        "system.memory.state",
        "system.memory.linux.slab.state",
        "linux.memory.slab.state",
        "system.paging.state",
        "system.filesystem.state",
        "process.state",
        "system.process.status",
        "system.processes.status",
        "process.status",
        "state",
        "status",
    ),
    DIRECTION: (
        "disk.io.direction",
        "network.io.direction",
        "system.disk.direction",
        "system.network.direction",
        "direction",
    ),
    DEVICE: ("system.device", "device"),
    INTERFACE: ("network.interface.name", "system.device", "interface", "device"),
    MOUNT: ("system.filesystem.mountpoint", "mountpoint"),
    "fault": ("system.paging.fault.type", "system.paging.type", "type"),
    "location": ("hw.sensor_location",),
    "task": ("hw.gpu.task",),
    "hardware": ("hw.type",),
    "container": ("k8s.container.name", "container.name"),
    "namespace": ("k8s.namespace.name",),
}
_MODES = {"wait": "iowait", "interrupt": "irq"}
"""Modes of a CPU that the catalogue calls otherwise."""


def alike(attributes: Mapping[str, str]) -> dict[str, str]:
    """What rules ask for, from attributes as they were and are called."""
    found = {}
    for name, names in _ALIKE.items():
        value = next((attributes[one] for one in names if one in attributes), "")
        if value:
            found[name] = value
    if MODE in found:
        found[MODE] = _MODES.get(found[MODE], found[MODE])
    if CPU in found:
        found[CPU] = found[CPU].removeprefix("cpu")
    return found
