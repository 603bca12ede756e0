"""NPU of DCMI, and its network port."""

import ctypes
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jobmeter.collect.accelerators.ascend.library import Chip, ChipInfo, Dcmi, DcmiError, DieId, PcieInfo, ProcessInfo
from jobmeter.collect.accelerators.device import Accelerator, DeviceLostError, DeviceProcess, NotSupportedError
from jobmeter.collect.machine import Machine
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.event import DEVICE_FAULT, Level
from jobmeter.model.time import Clock

UUID_PREFIX = "NPU-"
INTERVAL = 9.5
"""Seconds between two readings of a device: the driver refuses many calls in a short time."""
_MOST_PROCESSES = 32
_MOST_FAULTS = 128
_VDIE = 1
_NO_DEVICE = 0xFFFFFFFF
_LEVELS = (Level.INFO, Level.WARNING, Level.ERROR, Level.ERROR)
"""Level of a fault by the health of the device: no alarm, a general, an important or an urgent alarm."""


class AscendDevice(Accelerator):
    """NPU of DCMI. ``index`` is its physical number, as in the name of its file in /dev."""

    def __init__(self, number: int, clock: Clock, machine: Machine) -> None:
        super().__init__(number, clock, "ascend ")
        self.network: Callable[[], Mapping[str, float]] = dict
        """Function that returns the new values of the device's network port."""
        self._dev = machine.dev
        self._dcmi: Dcmi | None = None
        self._chip = Chip((), number)
        self._read_at = self._listed_at = -math.inf
        self._processes: list[DeviceProcess] | NotSupportedError = []
        self._faults: frozenset[int] = frozenset()

    @property
    def attached(self) -> bool:
        """True while the library can read the device."""
        return self._dcmi is not None

    def attach(self, dcmi: Dcmi, chip: Chip) -> None:
        """Read the identity of the device; a failure is in ``state`` and ``reason``."""
        try:
            present = dcmi.read_number(chip, "health") & _NO_DEVICE != _NO_DEVICE
            info, pcie, die = ChipInfo(), PcieInfo(), DieId()
            with suppress(DcmiError):
                dcmi.fill(chip, "chip_info", info)
            with suppress(DcmiError):
                place = dcmi.fill(chip, "pcie_info", pcie)
                self.pci = normalize_pci_address(f"{place.domain & 0xFFFF:04x}:{place.bus:02x}:{place.device:02x}")
            with suppress(DcmiError):
                dcmi.fill(chip, "die_id", die, _VDIE)
        except DcmiError as error:
            self.give_up(error)
            return
        except DeviceLostError as error:
            self.lose(str(error))
            return
        if not present:
            self.lose("the driver does not find it")
            return
        words = list(die.words)
        die_id = "".join(f"{word:08x}" for word in words) if any(words) else ""
        self.uuid = f"{UUID_PREFIX}{die_id}" if die_id else self.uuid or f"ascend:{self.pci or self.index}"
        text = (info.npu_name or info.name).decode(errors="replace").strip()
        self.name = f"Ascend {text}".strip() if not text.lower().startswith("ascend") else text
        self.minor = _minor(Path(self._dev, f"davinci{self.index}"))
        self.details = {"vendor": "ascend"} | ({"cores": info.cores} if info.cores else {})
        self._dcmi, self._chip = dcmi, chip
        self._read_at = self._listed_at = -math.inf
        self.note_answer()

    def detach(self) -> None:
        """Drop the library."""
        self._dcmi = None

    @property
    def library(self) -> tuple[Dcmi, Chip]:
        """Library, and the chip in it. Raises DeviceLostError while the device is not open."""
        if self._dcmi is None:
            raise DeviceLostError(self.reason or f"npu{self.index} is not open")
        return self._dcmi, self._chip

    def is_due(self) -> bool:
        """Return True and begin a reading if the device may be read now."""
        now = self._clock.monotonic()
        if now - self._read_at < INTERVAL:
            return False
        self._read_at = now
        return True

    def list_processes(self) -> Sequence[DeviceProcess]:
        """Return the processes with memory on the device, read as rarely as its values."""
        now = self._clock.monotonic()
        if now - self._listed_at >= INTERVAL:
            self._listed_at = now
            try:
                self._processes = self._list_processes()
            except NotSupportedError as error:
                self._processes = error
        if isinstance(self._processes, NotSupportedError):
            raise self._processes
        return self._processes

    def count_faults(self) -> int:
        """Return the number of active faults; each new one is an event."""
        dcmi, chip = self.library
        count, codes = ctypes.c_int(), (ctypes.c_uint * _MOST_FAULTS)()
        dcmi.ask(chip, "error_code_list", ctypes.byref(count), codes, ctypes.c_uint(_MOST_FAULTS))
        found = frozenset(codes[: min(max(count.value, 0), _MOST_FAULTS)])
        fresh, self._faults = found - self._faults, found
        if fresh:
            health = 0
            with suppress(DcmiError):
                health = dcmi.read_number(chip, "health")
            level = _LEVELS[health] if 0 <= health < len(_LEVELS) else Level.ERROR
            for code in sorted(fresh):
                text = f"reports the fault 0x{code:08X}. See the list of faults of its product for the code."
                self.add_event(DEVICE_FAULT, level, text)
        return len(found)

    def _list_processes(self) -> list[DeviceProcess]:
        dcmi, chip = self.library
        count, listed = ctypes.c_int(_MOST_PROCESSES), (ProcessInfo * _MOST_PROCESSES)()
        try:
            dcmi.ask(chip, "proc_mem_info", listed, ctypes.byref(count))
        except DeviceLostError as error:
            self.lose(str(error))
            raise
        self.note_answer()
        rows = listed[: min(max(count.value, 0), _MOST_PROCESSES)]
        return [DeviceProcess(one.pid, one.memory) for one in rows if one.pid > 0]


def _minor(path: Path) -> int | None:
    """Return the minor number of a device's file; None without the file."""
    try:
        return os.minor(path.stat().st_rdev)
    except OSError:
        return None
