"""OpenTelemetry attributes under one name each, from their old and new names."""

from collections.abc import Mapping

MODE, CPU, STATE, DIRECTION = "mode", "cpu", "state", "direction"
DEVICE, INTERFACE, MOUNT = "device", "interface", "mount"
"""Names of attributes in rules."""
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
"""Modes of a CPU that have another name in the catalogue."""


def add_common_names(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that rules use, from their old or new names."""
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
