"""Compute partition of a GPU: its processes, memory and utilization. The rest is measured for the GPU."""

from collections.abc import Mapping, Sequence

from jobmeter.collect.accelerators.amd.device import AmdDevice, Card
from jobmeter.collect.accelerators.amd.tables import Value, compute_partition_use
from jobmeter.collect.accelerators.amd.topology import ComputeNode, find_platform_name
from jobmeter.collect.accelerators.visible import Partition
from jobmeter.model.time import Clock

_EACH = 10_000
"""Distance between the device numbers of the first partitions of two GPUs."""


class AmdPartition(AmdDevice):
    """Compute partition of a GPU. ``place`` is its number on the GPU, from 0."""

    def __init__(self, parent: AmdDevice, place: int, node: ComputeNode, clock: Clock) -> None:
        super().__init__(0, clock, Card(parent.folder, parent.pci), parent.topology)
        self.pci = ""
        self.parent, self.place, self.node = parent, place, node
        self.minor = node.minor
        self._plugin_id = find_platform_name(parent.topology.machine, node.minor) or ("" if place else parent.pci)
        self._compute = (node.identity,)
        self.adopt()

    @property
    def attached(self) -> bool:
        """True while the GPU is attached."""
        return self.parent.attached

    def adopt(self) -> None:
        """Derive number and identity from the GPU, whose own number changes with the set of GPUs."""
        parent, node = self.parent, self.node
        self.index = (parent.index + 1) * _EACH + self.place
        own = f"GPU-{node.unique:016x}"
        self.uuid = own if node.unique and own != parent.uuid else f"{parent.uuid}:{self.place}"
        self.name = parent.name
        self.part = Partition(parent.index, parent.uuid, self.place, 0, self.place, self._plugin_id)
        shared = {name: value for name, value in parent.details.items() if name in {"vendor", "driver", "partition"}}
        own_details = {"parent": parent.uuid, "slices": node.dies, "memory": node.memory}
        self.details = {**shared, **{name: value for name, value in own_details.items() if value}}

    def attach(self) -> None:
        """Raise DeviceLostError if the GPU is gone."""
        self._require_presence()

    def detach(self) -> None:
        """Do nothing: only the GPU has files to forget."""

    def read_text(self, name: str) -> str:
        """Return the GPU's text for ``vendor``, which shows that the GPU is present; empty for any other name."""
        return super().read_text(name) if name == "vendor" else ""

    def read_number(self, name: str) -> int | None:
        """Return the partition's memory, or the memory that processes use in it; None for any other name."""
        if name == "mem_info_vram_total":
            return self.node.memory
        if name == "mem_info_vram_used":
            return sum(process.memory or 0 for process in self.list_processes())
        return None

    def read_sensor(self, name: str) -> int | None:  # noqa: ARG002 - sensors are the GPU's
        """Return None: only the whole GPU has sensors."""
        return None

    def read_table(self) -> Mapping[Value, Sequence[float]]:
        """Return the partition's utilization; empty if the firmware's table does not have it."""
        data = self.parent.read_raw_table()
        busy = compute_partition_use(data, self.place) if data else None
        return {} if busy is None else {Value.BUSY: [busy]}

    def read_limit_seconds(self, table: Mapping[Value, Sequence[float]]) -> Mapping[str, float]:  # noqa: ARG002
        """Return no limits: only the whole GPU has them."""
        return {}

    def count_errors(self) -> Mapping[str, int]:
        """Return no counts: the driver counts memory errors for the whole GPU."""
        return {}
