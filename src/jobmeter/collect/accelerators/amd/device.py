"""GPU of the driver ``amdgpu``: files of its folders in /sys, and of the compute driver (KFD)."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.accelerators.amd.tables import LONGEST, UnknownTableError, Value, parse_table
from jobmeter.collect.accelerators.amd.topology import ComputeNode, ComputeTopology
from jobmeter.collect.accelerators.device import Accelerator, DeviceLostError, DeviceProcess, NotSupportedError
from jobmeter.model.time import Clock

UUID_PREFIX = "GPU-"
_MOST_PROCESSES = 10_000
_LONGEST_TEXT = 4_096
_TABLE_SECONDS = 0.5
"""Longest age in seconds of the last table, which all partitions of a GPU share."""
_ERRORS = re.compile(r"^(ue|ce|de):\s*([0-9]+)\s*$", re.MULTILINE)
_LIMITS: Mapping[Value, str] = {
    Value.PROCHOT: "gpu.throttle.power.brake",
    Value.PACKAGE_POWER: "gpu.throttle.power",
    Value.SOCKET_HEAT: "gpu.throttle.thermal.hardware",
    Value.REGULATOR_HEAT: "gpu.throttle.thermal.hardware",
    Value.MEMORY_HEAT: "gpu.throttle.thermal.hardware",
}
"""Limits that slow a device, as metrics. Of limits with one metric the longest counts."""

_log = logging.getLogger(__name__)


class Card(NamedTuple):
    """GPU in /sys: the folder of its PCI device, and its address as ``normalize_pci_address`` has it."""

    folder: Path
    pci: str


class AmdDevice(Accelerator):
    """GPU of the driver ``amdgpu``. No file stays open between two readings."""

    def __init__(self, index: int, clock: Clock, card: Card, topology: ComputeTopology) -> None:
        super().__init__(index, clock, "amd ")
        self.pci = card.pci
        self.folder = card.folder
        """Folder of its PCI device in /sys."""
        self.compute_nodes: Sequence[ComputeNode] = ()
        """The GPU's devices in the compute driver: one, or one for each compute partition."""
        self.topology = topology
        self._kfd = Path(topology.machine.sys, "class/kfd/kfd")
        self._reading = Lock()
        self._raw: tuple[float, bytes] | None = None
        self._modules = Path(topology.machine.sys, "module")
        self._sensors: dict[str, str] = {}
        self._compute: tuple[str, ...] = ()
        self._unknown = ""
        self._limits: Mapping[Value, float] = {}
        self._limited_at = 0.0
        self._limited: dict[str, float] = {}
        self._errors: Mapping[str, Mapping[str, int]] = {}

    def attach(self) -> None:
        """Read the identity and the sensors of the device; a failure is in ``state`` and ``reason``."""
        try:
            self._require_presence()
        except DeviceLostError:
            return
        unique, serial = self.read_text("unique_id"), self.read_text("serial_number")
        self.uuid = f"{UUID_PREFIX}{unique}" if unique.strip("0") else serial or f"amd:{self.pci}"
        self.name = self.read_text("product_name") or f"AMD {self.read_text('device')}".strip()
        self.minor = next(
            (int(path.name[7:]) for path in self.folder.glob("drm/renderD*") if path.name[7:].isdigit()), None
        )
        partitions = (self.read_text("current_compute_partition"), self.read_text("current_memory_partition"))
        details: dict[str, str | int | None] = {
            "vendor": "amd",
            "serial": serial,
            "driver": files.read_text(str(self._modules / "amdgpu/version")),
            "memory": files.read_number(str(self.folder / "mem_info_vram_total")),
            "partition": "/".join(filter(None, partitions)),
        }
        self.details = {name: value for name, value in details.items() if value}
        self._sensors = _sensors(self.folder)
        self.look_for_partitions()
        self._limits, self._limited, self._errors = {}, {}, {}
        self._open = True
        self.note_answer()

    def look_for_partitions(self) -> None:
        """Read the GPU's devices in the compute driver, which change with the partition mode."""
        self.compute_nodes = self.topology.find_nodes(self.pci)
        self._compute = tuple(node.identity for node in self.compute_nodes)

    @property
    def is_partitioned(self) -> bool:
        """True for a GPU in several partitions, on which all processes run."""
        return len(self.compute_nodes) > 1

    def read_text(self, name: str) -> str:
        """Return the text of a file; empty if the device does not give it."""
        found = files.read(str(self.folder / name), _LONGEST_TEXT) or b""
        return found.decode(errors="replace").strip()

    def read_number(self, name: str) -> int | None:
        """Return the number in a file; None if the device does not give it. A partitioned GPU gives no memory."""
        if self.is_partitioned and name.startswith("mem_info_vram"):
            return None
        return files.read_number(str(self.folder / name))

    def read_sensor(self, name: str) -> int | None:
        """Return the reading of a sensor in the units of hwmon: ``temperature edge``, ``power``, ``clock sclk``."""
        path = self._sensors.get(name)
        return None if path is None else files.read_number(path)

    def read_table(self) -> Mapping[Value, Sequence[float]]:
        """Return the values of the firmware's table; empty without a known one."""
        data = self.read_raw_table()
        if not data:
            return {}
        try:
            return parse_table(data)
        except UnknownTableError as error:
            if str(error) != self._unknown:
                self._unknown = str(error)
                _log.warning("%s: %s: its values are left out", self.pci, error)
            return {}

    def read_raw_table(self) -> bytes | None:
        """Return the bytes of the firmware's table; None without a table. Thread-safe: partitions share a reading."""
        with self._reading:
            now = self._clock.monotonic()
            if self._raw is None or not 0 <= now - self._raw[0] < _TABLE_SECONDS:
                data = files.read(str(self.folder / "gpu_metrics"), LONGEST)
                self._raw = (now, data) if data else None
            return self._raw and self._raw[1]

    def read_limit_seconds(self, table: Mapping[Value, Sequence[float]]) -> Mapping[str, float]:
        """Return the seconds for which each limit slowed the device since the first call, by metric.

        The firmware counts readings in which a limit applied: their share counts, times the time since the last call.
        """
        now = self._clock.monotonic()
        counts = {name: table[name][0] for name in (Value.READINGS, *_LIMITS) if table.get(name)}
        before, self._limits = self._limits, counts
        passed, self._limited_at = now - self._limited_at, now
        read = counts.get(Value.READINGS, 0.0) - before.get(Value.READINGS, 0.0)
        if Value.READINGS not in counts:
            return {}
        shares: dict[str, float] = {}
        for name, metric in _LIMITS.items():
            if name in counts:
                grown = max(counts[name] - before.get(name, counts[name]), 0.0)
                share = min(grown / read, 1.0) if read > 0 and Value.READINGS in before else 0.0
                shares[metric] = max(shares.get(metric, 0.0), share)
        self._limited = {metric: self._limited.get(metric, 0.0) + share * passed for metric, share in shares.items()}
        return self._limited

    def count_errors(self) -> Mapping[str, int]:
        """Return the memory errors by kind, ``ue``, ``ce`` and ``de``, over all blocks of the chip.

        A block without counts now has its last ones: a smaller sum would count as a restart of the counter. Empty if no
        block gives counts now.
        """
        now = {
            path.name: found
            for path in sorted(self.folder.glob("ras/*_err_count"))
            if (found := {kind: int(count) for kind, count in _ERRORS.findall(self.read_text(f"ras/{path.name}"))})
        }
        if not now:
            return {}
        self._errors = {**self._errors, **now}
        total: Counter[str] = Counter()
        for counts in self._errors.values():
            total.update(counts)
        return total

    def list_processes(self) -> Sequence[DeviceProcess]:
        """Return the processes of the compute driver that have memory on the device."""
        self._require_presence()
        if self.is_partitioned:
            raise NotSupportedError("all processes run on its partitions", lasting=True)
        if not self._compute:
            raise NotSupportedError("the compute driver does not know it", lasting=True)
        found = []
        for folder, _ in zip(self._kfd.glob("proc/[0-9]*"), range(_MOST_PROCESSES), strict=False):
            used = [files.read_number(str(folder / f"vram_{identity}")) for identity in self._compute]
            memory = sum(number for number in used if number is not None)
            if memory and folder.name.isdigit():
                found.append(DeviceProcess(int(folder.name), memory))
        return found

    def answer(self, found: Mapping[str, float | None]) -> dict[str, float]:
        """Return the known values. Raises NotSupportedError without any, DeviceLostError if it is gone."""
        self._require_presence()
        values = super().answer(found)
        if not values:
            raise NotSupportedError("the driver gives none of its values")
        return values

    def _require_presence(self) -> None:
        if not self.read_text("vendor"):
            self.lose(f"{self.pci} has no readable files in /sys")
            raise DeviceLostError(self.reason)


def _sensors(folder: Path) -> dict[str, str]:
    """Return the files of the sensors by name."""
    found: dict[str, str] = {}
    for kind, start in (("temperature", "temp"), ("clock", "freq")):
        for label in sorted(folder.glob(f"hwmon/hwmon*/{start}*_label")):
            path = str(label).removesuffix("_label")
            found[f"{kind} {files.read_text(str(label))}"] = f"{path}_input"
            found[f"critical {kind} {files.read_text(str(label))}"] = f"{path}_crit"
    named = {"power": ("power1_average", "power1_input"), "power limit": ("power1_cap",)}
    named |= {"fan": ("fan1_input",), "fan limit": ("fan1_max",)}
    for name, choices in named.items():
        paths = [path for choice in choices for path in sorted(folder.glob(f"hwmon/hwmon*/{choice}"))]
        if paths:
            found[name] = str(paths[0])
    return found
