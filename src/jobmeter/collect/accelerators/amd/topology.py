"""Devices of the compute driver (KFD) in /sys: one for a GPU, or one for each of its partitions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.machine import Machine

_VRAM = 1, 2
"""Types of memory banks in device memory: visible to the processor, and invisible."""
_MOST_NODES = 1_024
_MOST_BANKS = 64


class ComputeNode(NamedTuple):
    """Device of the compute driver. ``identity`` is its number (``gpu_id``), ``minor`` its render node.

    ``dies`` is the number of dies, ``memory`` is in bytes. Unknown fields are None; an unknown ``unique`` is 0.
    """

    identity: str
    unique: int
    minor: int | None
    dies: int | None
    memory: int | None


class ComputeTopology:
    """Devices of the compute driver on a machine, read once for each collection. Thread-safe."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._lock = Lock()
        self._collection, self._read = 0, -1
        self._nodes: Mapping[tuple[int, int], Sequence[ComputeNode]] = {}

    def begin_collection(self) -> None:
        """Make the next call of ``find_nodes`` read the files again. Never waits."""
        self._collection += 1

    def find_nodes(self, pci: str) -> Sequence[ComputeNode]:
        """Return the devices at a PCI address: a GPU, or its partitions in order."""
        domain, bus, slot = (int(part, 16) for part in pci.split(":"))
        with self._lock:
            collection = self._collection
            if collection != self._read:
                self._nodes, self._read = _nodes_by_place(self.machine), collection
            return self._nodes.get((domain, bus << 8 | slot << 3), ())


def _nodes_by_place(machine: Machine) -> Mapping[tuple[int, int], Sequence[ComputeNode]]:
    """Return the devices by PCI domain and position on the bus."""
    found: defaultdict[tuple[int, int], list[ComputeNode]] = defaultdict(list)
    nodes = Path(machine.sys, "class/kfd/kfd/topology/nodes")
    for folder in (nodes / str(number) for number in files.list_numbers(nodes, "")[:_MOST_NODES]):
        properties = files.read_pairs(str(folder / "properties")) or {}
        place = properties.get(b"location_id", 0) & 0xFFF8  # the other bits number the partition
        identity = files.read_number(str(folder / "gpu_id")) if properties.get(b"simd_count") else None
        if identity:
            unique, minor = properties.get(b"unique_id", 0), properties.get(b"drm_render_minor")
            node = ComputeNode(str(identity), unique, minor, properties.get(b"num_xcc"), _memory(folder))
            found[properties.get(b"domain", 0), place].append(node)
    return found


def find_platform_name(machine: Machine, minor: int | None) -> str:
    """Return the name of a partition's platform device, for example ``amdgpu_xcp_3``; empty without a device."""
    for folder in Path(machine.sys, "devices/platform").glob(f"amdgpu_xcp[._]*/drm/renderD{minor}"):
        return folder.parents[1].name.replace(".", "_")
    return ""


def _memory(folder: Path) -> int | None:
    """Return the bytes of device memory: the sum over the device's memory banks."""
    numbers = files.list_numbers(folder / "mem_banks", "")[:_MOST_BANKS]
    banks = (files.read_pairs(f"{folder}/mem_banks/{number}/properties") or {} for number in numbers)
    sizes = [bank.get(b"size_in_bytes", 0) for bank in banks if bank.get(b"heap_type") in _VRAM]
    return sum(sizes) or None
