"""AMD as a vendor of accelerators: its driver, its partitions, and the measures of its GPUs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.accelerators.amd.device import (
    UUID_PREFIX,
    AmdDevice,
    Card,
    ComputeNode,
    ComputeTopology,
    platform_name,
)
from jobmeter.collect.accelerators.amd.tables import Value, partition_busy
from jobmeter.collect.accelerators.device import close_all, open_due, wait_for
from jobmeter.collect.accelerators.vendor import DeviceHealth, DriverProblem, Measure, Vendor
from jobmeter.collect.accelerators.visible import Numbered, Partition, VisibleVariable, parse_ordered_devices
from jobmeter.collect.base import Machine
from jobmeter.model.device import DeviceState, pci_address
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
        self._plugin_id = platform_name(parent.topology.machine, node.minor) or ("" if place else parent.pci)
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

    def text(self, name: str) -> str:
        """Return the GPU's text for ``vendor``, which shows that the GPU is present; empty for any other name."""
        return super().text(name) if name == "vendor" else ""

    def number(self, name: str) -> int | None:
        """Return the partition's memory, or the memory that processes use in it; None for any other name."""
        if name == "mem_info_vram_total":
            return self.node.memory
        if name == "mem_info_vram_used":
            return sum(process.memory or 0 for process in self.processes())
        return None

    def read_sensor(self, name: str) -> int | None:  # noqa: ARG002 - sensors are the GPU's
        """Return None: only the whole GPU has sensors."""
        return None

    def table(self) -> Mapping[Value, Sequence[float]]:
        """Return the partition's utilization; empty if the firmware's table does not have it."""
        data = self.parent.read_raw_table()
        busy = partition_busy(data, self.place) if data else None
        return {} if busy is None else {Value.BUSY: [busy]}

    def limited(self, table: Mapping[Value, Sequence[float]]) -> Mapping[str, float]:  # noqa: ARG002
        """Return no limits: only the whole GPU has them."""
        return {}

    def errors(self) -> Mapping[str, int]:
        """Return no counts: the driver counts memory errors for the whole GPU."""
        return {}


_AMD = "0x1002"
_MOST_DEVICES = 256


class AmdDriver:
    """GPUs of the driver ``amdgpu``, by PCI address. ``patience``: seconds that one collection waits for the devices.

    A device keeps its number until the set of addresses changes. A device that has disappeared is lost.
    """

    problem: DriverProblem | None = None
    """Always None: the kernel's files need no library."""

    def __init__(self, clock: Clock, machine: Machine, patience: float) -> None:
        self._clock = clock
        self._machine = machine
        self._patience = patience
        self._topology = ComputeTopology(machine)
        self._devices: list[AmdDevice] = []
        self._partitions: list[AmdPartition] = []

    def devices(self, now_ms: int | None = None) -> Sequence[AmdDevice]:
        """Return the GPUs, including those that have disappeared since the start, each before its partitions."""
        known = {device.pci: device for device in self._devices}
        cards = {card.pci: card for card in find_cards(self._machine)}
        if cards.keys() - known.keys():
            self._devices = []
            for index, pci in enumerate(sorted(known.keys() | cards.keys())):
                device = known.get(pci) or AmdDevice(index, self._clock, cards[pci], self._topology)
                device.index = index
                self._devices.append(device)
        deadline = self._clock.monotonic() + self._patience
        self._topology.begin_collection()
        for device in self._devices:
            device.begin_round(now_ms)
        open_due(self._devices, lambda device: device.attach, deadline, self._clock)
        self._find_partitions(deadline, now_ms)
        return [
            one for device in self._devices for one in (device, *(p for p in self._partitions if p.parent is device))
        ]

    def _find_partitions(self, deadline: float, now_ms: int | None) -> None:
        """List the partitions of every GPU. A GPU that does not answer keeps its known partitions."""
        asked = [one for one in self._devices if one.attached and one.begin(one.look_for_partitions)]
        wait_for(asked, deadline, self._clock)
        before = {(one.parent, one.place, one.node): one for one in self._partitions}
        self._partitions = []
        for device in self._devices:
            for place, node in enumerate(device.compute_nodes if device.is_partitioned else ()):
                found = before.pop((device, place, node), None)
                self._partitions.append(found or AmdPartition(device, place, node, self._clock))
        for one in self._partitions:
            one.adopt()
            one.begin_round(now_ms)
        for gone in before.values():
            gone.close()

    def close(self) -> bool:
        """Forget the files of the devices: none of them is open between two readings."""
        return close_all([*self._devices, *self._partitions])


def find_cards(machine: Machine) -> list[Card]:
    """Return AMD's GPUs by PCI address, without their connectors and partitions."""
    found: dict[str, Card] = {}
    for path in sorted(Path(machine.sys, "class/drm").glob("card[0-9]*"))[:_MOST_DEVICES]:
        folder = path / "device"
        if path.name[4:].isdigit() and files.read_text(str(folder / "vendor")) == _AMD:
            pci = pci_address(_slot(folder))
            if pci:
                # A card that returns may have another number, and another card its number: the address is stable.
                found.setdefault(pci, Card(folder.resolve(), pci))
    return [found[pci] for pci in sorted(found)]


def _slot(folder: Path) -> str:
    """Return the address in the file ``uevent`` of a PCI device."""
    lines = files.read_text(str(folder / "uevent")).splitlines()
    return next((line.partition("=")[2] for line in lines if line.startswith("PCI_SLOT_NAME=")), "")


_PERCENT, _MILLI, _MICRO, _MEGA, _KIBI = 0.01, 1e-3, 1e-6, 1e6, 1024.0
_JOULES = 2.0**-16
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Generation of PCIe by its speed in GT/s."""
_MOST_LANES = 32

_FAST = (
    *("gpu.utilization", "gpu.memory.copy.utilization", "gpu.memory.usage", "gpu.memory.limit"),
    *("gpu.power", "gpu.energy", "gpu.temperature", "gpu.temperature.hotspot", "gpu.temperature.memory"),
    *("gpu.clock.sm", "gpu.clock.memory", "gpu.xgmi.receive", "gpu.xgmi.transmit"),
    *("gpu.throttle.power", "gpu.throttle.power.brake", "gpu.throttle.thermal.hardware"),
)
_SLOW = (
    *("gpu.power.limit", "gpu.fan", "gpu.ecc.corrected", "gpu.ecc.uncorrected", "gpu.ecc.deferred"),
    *("gpu.pcie.replay", "gpu.pcie.generation", "gpu.pcie.generation.limit"),
    *("gpu.pcie.width", "gpu.pcie.width.limit"),
)


def _measure_fast(device: AmdDevice) -> Mapping[str, float]:
    table = device.table()
    edge, junction = device.read_sensor("temperature edge"), device.read_sensor("temperature junction")
    hotspot = _scale(junction, _MILLI, _mean(table, Value.HOTSPOT))
    found = {
        "gpu.utilization": _scale(device.number("gpu_busy_percent"), _PERCENT, _mean(table, Value.BUSY, _PERCENT)),
        "gpu.memory.copy.utilization": _scale(
            device.number("mem_busy_percent"), _PERCENT, _mean(table, Value.MEMORY_BUSY, _PERCENT)
        ),
        "gpu.memory.usage": _scale(device.number("mem_info_vram_used"), 1.0),
        "gpu.memory.limit": _scale(device.number("mem_info_vram_total"), 1.0),
        "gpu.power": _scale(device.read_sensor("power"), _MICRO, _mean(table, Value.POWER)),
        "gpu.energy": _mean(table, Value.ENERGY, _JOULES),
        "gpu.temperature": _scale(edge, _MILLI, hotspot),
        "gpu.temperature.hotspot": hotspot,
        "gpu.temperature.memory": _scale(
            device.read_sensor("temperature mem"), _MILLI, _mean(table, Value.MEMORY_TEMPERATURE)
        ),
        "gpu.clock.sm": _scale(device.read_sensor("clock sclk"), 1.0, _mean(table, Value.CLOCK, _MEGA)),
        "gpu.clock.memory": _scale(device.read_sensor("clock mclk"), 1.0, _mean(table, Value.MEMORY_CLOCK, _MEGA)),
        "gpu.xgmi.receive": _sum(table, Value.XGMI_READ, _KIBI),
        "gpu.xgmi.transmit": _sum(table, Value.XGMI_WRITE, _KIBI),
        **device.limited(table),
    }
    return device.answer({name: value for name, value in found.items() if value is not None})


def _measure_slow(device: AmdDevice) -> Mapping[str, float]:
    errors = device.errors()
    fan, fastest = device.read_sensor("fan"), device.read_sensor("fan limit")
    found = {
        "gpu.power.limit": _scale(device.read_sensor("power limit"), _MICRO),
        "gpu.fan": fan / fastest if fan is not None and fastest else None,
        "gpu.ecc.corrected": _scale(errors.get("ce"), 1.0),
        "gpu.ecc.uncorrected": _scale(errors.get("ue"), 1.0),
        "gpu.ecc.deferred": _scale(errors.get("de"), 1.0),
        "gpu.pcie.replay": _scale(device.number("pcie_replay_count"), 1.0),
        "gpu.pcie.generation": _generation(device.text("current_link_speed")),
        "gpu.pcie.generation.limit": _generation(device.text("max_link_speed")),
        "gpu.pcie.width": _width(device.number("current_link_width")),
        "gpu.pcie.width.limit": _width(device.number("max_link_width")),
    }
    return device.answer({name: value for name, value in found.items() if value is not None})


def _scale(number: float | None, scale: float, otherwise: float | None = None) -> float | None:
    return otherwise if number is None else number * scale


def _sum(table: Mapping[Value, Sequence[float]], name: Value, scale: float) -> float | None:
    numbers = table.get(name)
    return sum(numbers) * scale if numbers else None


def _mean(table: Mapping[Value, Sequence[float]], name: Value, scale: float = 1.0) -> float | None:
    numbers = table.get(name)
    return sum(numbers) / len(numbers) * scale if numbers else None


def _width(lanes: int | None) -> float | None:
    """Return the lanes of a link; None for 0 and for numbers above 32, by which the kernel says that it knows none."""
    return float(lanes) if lanes is not None and 0 < lanes <= _MOST_LANES else None


def _generation(text: str) -> float | None:
    """Return the generation of a speed such as ``16.0 GT/s PCIe``; None for an unknown one."""
    word = text.split(" ", 1)[0]
    try:
        found = _GENERATIONS.get(float(word))
    except ValueError:
        return None
    return None if found is None else float(found)


MEASURES = (Measure(_FAST, _measure_fast),)
"""Measures read at every collection."""
SLOW_MEASURES = (Measure(_SLOW, _measure_slow),)
"""Measures read once a minute: limits, counters of errors, and the PCIe link."""


def _check(device: AmdDevice) -> DeviceHealth:
    """Read memory errors, and the temperatures that reach their critical value."""
    values: dict[str, float] = {}
    errors, warnings = [], []
    counts = device.errors()
    if "ue" in counts:
        values["ecc_uncorrected"] = float(counts["ue"])
        errors += [f"{counts['ue']} memory errors were not corrected"] if counts["ue"] else []
    for name in ("edge", "junction", "mem"):
        heat, critical = (device.read_sensor(f"{prefix}temperature {name}") for prefix in ("", "critical "))
        if heat is not None:
            values[f"temperature_{name}"] = heat / 1_000
            if critical and heat >= critical:
                warnings.append(f"its temperature ({name}) is {heat // 1_000} °C")
    device.answer(values or {"answers": 1.0})
    return DeviceHealth(values, errors, warnings)


def _uuid_of_id(text: str) -> str:
    """Return the PCI address in an id of the device plug-in, else the id."""
    return pci_address(text) or text


def _parse_rocr_list(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices that a list of ROCr names. ROCr counts the partitions of a GPU instead of the GPU."""
    divided = {device.part.parent for device in devices if device.part is not None}
    computing = [device for device in devices if device.part is not None or device.index not in divided]
    return parse_ordered_devices(text, computing, uuid_prefix=UUID_PREFIX)


VENDOR = Vendor(
    name="amd",
    title="AMD",
    noun="GPU",
    source="the driver amdgpu",
    prefix="gpu",
    open=AmdDriver,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=_check,
    # https://docs.kernel.org/admin-guide/devices.html: the render nodes of all GPUs.
    device_numbers={226: range(128, 192)},
    device_files="/dev/kfd",
    driver_folder="driver/amdgpu",
    pci_driver="amdgpu",
    unit_devices=(),  # its files in /sys are enough
    domain="amd.com",
    uuid_of_id=_uuid_of_id,
    id_of_part=lambda part: part.plugin_id,
    # https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html: HIP counts within ROCr's devices.
    variables=(
        VisibleVariable("HIP_VISIBLE_DEVICES", _parse_rocr_list, relative=True, within="ROCR_VISIBLE_DEVICES"),
        VisibleVariable(
            "CUDA_VISIBLE_DEVICES", _parse_rocr_list, relative=True, within="ROCR_VISIBLE_DEVICES", shared=True
        ),
        VisibleVariable("GPU_DEVICE_ORDINAL", _parse_rocr_list, relative=True, within="ROCR_VISIBLE_DEVICES"),
        VisibleVariable("ROCR_VISIBLE_DEVICES", _parse_rocr_list, relative=True),
    ),
    uuid_prefix=UUID_PREFIX,
    advice={DeviceState.LOST: "see the kernel's log for amdgpu, and reset or replace it"},
    help="see `amd-smi list` and the kernel's log for amdgpu",
    recovery="See the kernel's log for amdgpu, and reset or replace it.",
)
