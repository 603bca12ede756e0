"""Neuron device: files of its folder in /sys, and the device's values in the reports of ``neuron-monitor``.

Names and meanings of the files before driver 2.31, which moved some files:
https://awsdocs-neuron.readthedocs-hosted.com/en/v2.28.1/tools/neuron-sys-tools/neuron-sysfs-user-guide.html.
Their formats: https://github.com/aws-neuron/aws-neuron-driver (``neuron_sysfs_metrics.c``, ``neuron_power.c``).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.accelerators.device import Accelerator, DeviceLostError, DeviceProcess, NotSupportedError
from jobmeter.collect.accelerators.neuron.monitor import MonitorReader, MonitorReport
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.event import DEVICE_FAULT, Level
from jobmeter.model.time import Clock

CLASS = "devices/virtual/neuron_device"
"""Folder of the driver in /sys, with a folder ``neuronN`` for each device."""
UUID_PREFIX = "neuron-"
_LONGEST = 4_096
_MOST_CORES = 128
_GIB = 2**30
_MEMORY: Mapping[str, int] = {
    "Inferentia": 8 * _GIB,
    "Inferentia2": 32 * _GIB,
    "Trainium1": 32 * _GIB,
    "Trainium2": 96 * _GIB,
}
"""Bytes of memory by product: awsdocs-neuron.readthedocs-hosted.com, "AWS Neuron architecture guides"."""
_GROUPED: Mapping[str, int] = {"Trainium2": 2, "Trainium3": 2}
"""Physical cores of a logical core by default; other products have one.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-features/logical-neuroncore-config.html
"""
_FAULTS = ("hw_error", "hw_collectives_error", "hw_hbm_ue_error", "hw_nc_ue_error", "hw_dma_abort_error")
_REPAIRABLE = "hw_repairable_hbm_ue_error"
_ECC = ("mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected")
_POWER = re.compile(r"POWER_STATUS_VALID,\d+,\d+\.\d+,\d+\.\d+,(\d+\.\d+)", re.ASCII)


class NeuronDevice(Accelerator):
    """Neuron device. ``index`` is its number in /sys and /dev, also inside a container."""

    def __init__(self, number: int, clock: Clock, machine: Machine, monitor: MonitorReader) -> None:
        super().__init__(number, clock, "neuron ")
        self._folder = Path(machine.sys, CLASS, f"neuron{number}")
        self._modules = Path(machine.sys, "module")
        self._monitor = monitor
        self._product = ""
        self._faults: Mapping[str, int] = {}
        self._uncorrected = 0

    def attach(self) -> None:
        """Read the identity of the device; a failure is in ``state`` and ``reason``."""
        try:
            self._product = self.read_text("info/architecture/device_name")
            serial = self.read_text("info/serial_number")
        except DeviceLostError:
            return
        except NotSupportedError as error:
            self.give_up(error)
            return
        self.uuid = f"{UUID_PREFIX}{serial}" if serial else ""
        self.name = f"AWS {self._product}" if self._product else "AWS Neuron device"
        self.minor = self.index  # the driver numbers both by one number (``neuron_cdev.c``)
        driver = files.read_text(str(self._modules / "neuron/version"))
        found = {"vendor": "neuron", "serial": serial, "driver": driver}
        self.details = {name: text for name, text in found.items() if text}
        self._update_details()
        self._faults = self.count_faults()
        self._open = True
        self.note_answer()

    def read_text(self, name: str) -> str:
        """Return the text of a file; empty if the device does not give it.

        Raises NotSupportedError if the file may not be read, DeviceLostError if the device is gone.
        """
        try:
            with (self._folder / name).open("rb") as file:
                found = file.read(_LONGEST)
        except PermissionError as error:
            reason = f"{self._folder / name} may not be read"
            raise NotSupportedError(reason, state=DeviceState.NO_PERMISSION) from error
        except OSError:
            self._check_presence()
            return ""
        return found.decode(errors="replace").strip()

    def read_number(self, name: str) -> int | None:
        """Return the number in a file; None if the device does not give it."""
        text = self.read_text(name)
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def memory_limit(self) -> int | None:
        """Bytes of device memory, by the report of the program or by the product; None if both are unknown."""
        report = self._monitor.report
        return (report.memory if report else 0) or _MEMORY.get(self._product)

    def read_memory_usage(self) -> int | None:
        """Return the bytes of device memory in use; None if the value of any core is unknown."""
        used = [self.read_number(f"{core}/stats/memory_usage/device_mem/total") for core in self._list_core_folders()]
        counts = [number for number in used if number is not None]
        return sum(counts) if counts and len(counts) == len(used) else None

    def read_utilization(self) -> float | None:
        """Return the percent of time in which the cores worked, as their mean; None if unknown."""
        report = self._monitor.report
        shares = report.read_shares(self.index) if report else None
        return None if shares is None else sum(shares.values())

    def measure_power_share(self) -> float | None:
        """Return the power in percent of the maximum, as the mean of the last minute; None without a valid reading."""
        match = _POWER.fullmatch(self.read_text("stats/power/utilization"))
        return float(match[1]) if match else None

    def count_corrected_errors(self) -> int | None:
        """Return the corrected memory errors; None if unknown."""
        report = self._monitor.report
        return report.count_corrected(self.index) if report else None

    def count_uncorrected_errors(self) -> int | None:
        """Return the uncorrected memory errors; None if the device gives no count.

        The driver writes 0 for a register that it cannot read, so a sum below the previous one is unknown.
        """
        counts = [number for name in _ECC if (number := self.read_number(f"stats/hardware/{name}")) is not None]
        if not counts or sum(counts) < self._uncorrected:
            return None
        self._uncorrected = sum(counts)
        return self._uncorrected

    def count_faults(self) -> Mapping[str, int]:
        """Return the executions that a hardware fault ended, over all cores by name of the status.

        The driver adds the counts of a process when the process ends. Empty without counts.
        """
        found: dict[str, int] = {}
        for core in self._list_core_folders():
            for name in (*_FAULTS, _REPAIRABLE):
                number = self.read_number(f"{core}/stats/status/{name}/total")
                if number is not None:
                    found[name] = found.get(name, 0) + number
        return found

    def sum_faults(self) -> int | None:
        """Return the sum of ``count_faults``; None without counts. Each increase of a count is an event."""
        before, self._faults = self._faults, self.count_faults()
        for name, count in self._faults.items():
            grown = count - before.get(name, 0)
            if grown > 0:
                level = Level.WARNING if name == _REPAIRABLE else Level.ERROR
                text = f"ended {grown} executions with {name}. See the kernel's log for neuron."
                self.add_event(DEVICE_FAULT, level, text)
        return sum(self._faults.values()) if self._faults else None

    def list_processes(self) -> Sequence[DeviceProcess]:
        """Return the processes that the program reports on the device's cores."""
        return self._read_report().list_processes(self.index)

    def process_utilization(self) -> Mapping[int, float] | None:
        """Return the percent of the device's core time by process; None if the share of any process is unknown."""
        return self._read_report().read_shares(self.index)

    def answer(self, found: Mapping[str, float | None]) -> dict[str, float]:
        """Return the known values of a reading. Raises DeviceLostError if the device is gone."""
        self._check_presence()
        self.note_answer()
        self._update_details()
        return super().answer(found)

    def _read_report(self) -> MonitorReport:
        report = self._monitor.report
        if report is None or not report.cores:
            raise NotSupportedError("neuron-monitor gives no report")
        return report

    def _update_details(self) -> None:
        """Update memory and logical cores, by which environments and the device plug-in name cores."""
        report, physical = self._monitor.report, len(self._list_core_folders())
        found = {
            "memory": self.memory_limit,
            "cores": (report.cores if report else 0) or physical // _GROUPED.get(self._product, 1),
        }
        self.details = {**self.details, **{name: number for name, number in found.items() if number}}

    def _list_core_folders(self) -> list[str]:
        return [f"neuron_core{number}" for number in files.list_numbers(self._folder, "neuron_core")[:_MOST_CORES]]

    def _check_presence(self) -> None:
        if self._folder.is_dir():
            return
        gone = DeviceState.LOST if self._folder.parent.is_dir() else DeviceState.DRIVER_NOT_LOADED
        self.lose(f"{self._folder} is not there", gone)
        raise DeviceLostError(self.reason)
