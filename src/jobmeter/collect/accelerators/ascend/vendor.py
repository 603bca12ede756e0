"""Huawei's Ascend as a vendor of accelerators: its driver and the measures of its NPUs."""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from jobmeter.collect.accelerators.ascend.device import METRICS as NETWORK
from jobmeter.collect.accelerators.ascend.device import UUID_PREFIX, AscendDevice, NetworkReader
from jobmeter.collect.accelerators.ascend.library import (
    LIBRARY,
    Chip,
    Dcmi,
    DcmiError,
    EccInfo,
    HbmInfo,
    MemoryInfo,
    load,
)
from jobmeter.collect.accelerators.device import SLOW_SECONDS, DeviceLostError, close_all, open_due
from jobmeter.collect.accelerators.vendor import DeviceHealth, DriverProblem, Measure, Vendor
from jobmeter.collect.accelerators.visible import Numbered, VisibleVariable, numbers_in, parse_ordered_devices
from jobmeter.collect.backoff import Backoff
from jobmeter.collect.base import Machine
from jobmeter.collect.call_thread import CallThread
from jobmeter.model.device import DeviceState
from jobmeter.model.time import MINUTE, Clock

FILES = "davinci"


class _Opened(NamedTuple):
    dcmi: Dcmi
    chips: Sequence[Chip]


class AscendDriver:
    """NPUs of DCMI, by physical number. ``patience``: seconds that one collection waits for the devices.

    A device that disappears from DCMI's list is reported as lost. Calls that may block run in threads.
    """

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        patience: float,
        load: "Callable[[], ctypes.CDLL | None]" = load,
        network: NetworkReader | None = None,
    ) -> None:
        self.problem: DriverProblem | None = None
        self._clock, self._machine, self._patience, self._load = clock, machine, patience, load
        self._network = network or NetworkReader(clock)
        self._calls: CallThread[_Opened | DriverProblem] = CallThread("dcmi")
        self._began: float | None = None
        self._listed_ms: int | None = None
        self._dcmi: Dcmi | None = None
        self._chips: dict[int, Chip] = {}
        self._devices: dict[int, AscendDevice] = {}
        self._retry = Backoff()

    def devices(self, now_ms: int | None = None) -> Sequence[AscendDevice]:
        """Return the NPUs, including those that cannot be opened."""
        deadline = self._clock.monotonic() + self._patience
        self._retry.tick(now_ms)
        present = self._list_device_files()
        for device in self._devices.values():
            device.begin_round(now_ms)
        if self._began is None and self._is_due(now_ms) and (present or self._devices):
            self._calls.begin(partial(_open, self._load, self._dcmi))
            self._began, self._listed_ms = self._clock.monotonic(), now_ms
        if self._began is not None:
            self._finish_open(present, deadline)
        self._attach(deadline)
        self._network.update(sorted(number for number, one in self._devices.items() if one.attached))
        return [self._devices[number] for number in sorted(self._devices)]

    def close(self) -> bool:
        """Drop the library. DCMI has no call that closes its files."""
        quiet = close_all(self._devices.values()) and not self._calls.busy
        self._network.close()
        if quiet:
            self._calls.close()
            self._dcmi, self._began, self._listed_ms = None, None, None
        return quiet

    def _list_device_files(self) -> list[int]:
        """Return the numbers of the files of NPUs in /dev."""
        names = (path.name.removeprefix(FILES) for path in Path(self._machine.dev).glob(f"{FILES}[0-9]*"))
        return sorted(int(name) for name in names if name.isdigit())

    def _is_due(self, now_ms: int | None) -> bool:
        """Return True once a minute, when the library has to be opened or its list read again."""
        if self._dcmi is None:
            return self._retry.due
        return now_ms is None or self._listed_ms is None or not 0 <= now_ms - self._listed_ms < MINUTE

    def _finish_open(self, present: Sequence[int], deadline: float) -> None:
        if not self._calls.wait(deadline - self._clock.monotonic()):
            if self._clock.monotonic() - (self._began or 0.0) >= SLOW_SECONDS:
                self._fail(DriverProblem("dcmi_init does not return", DeviceState.HANGS), present)
            return
        self._began = None
        found = self._calls.result()
        if isinstance(found, DriverProblem):
            self._retry.failed()
            self._fail(found, present)
            return
        self._retry.succeeded()
        self.problem, self._dcmi = None, found.dcmi
        self._chips = {chip.number: chip for chip in found.chips}
        self._fill(self._chips)

    def _fail(self, problem: DriverProblem, present: Sequence[int]) -> None:
        self.problem, self._dcmi = problem, None
        self._fill(present)
        for device in self._devices.values():
            device.failed(problem.state, problem.text)

    def _fill(self, numbers: "Sequence[int] | dict[int, Chip]") -> None:
        for number in numbers:
            if number not in self._devices:
                device = self._devices[number] = AscendDevice(number, self._clock, self._machine)
                device.network = partial(self._network.values, number)

    def _attach(self, deadline: float) -> None:
        """Open the devices that are not open, all at once."""
        dcmi = self._dcmi
        if dcmi is None:
            return
        for number, device in self._devices.items():
            if number not in self._chips and not device.busy:
                device.failed(DeviceState.LOST, "DCMI does not list it")
        listed = [device for number, device in self._devices.items() if number in self._chips]
        open_due(listed, lambda one: partial(one.attach, dcmi, self._chips[one.index]), deadline, self._clock)


def _open(load: "Callable[[], ctypes.CDLL | None]", dcmi: Dcmi | None) -> _Opened | DriverProblem:
    """Open the library, unless it is open, and list its chips."""
    if dcmi is None:
        library = load()
        if library is None:
            return DriverProblem(f"{LIBRARY} cannot be found", DeviceState.LIBRARY_MISSING)
        try:
            dcmi = Dcmi(library)
        except DcmiError as error:
            return DriverProblem(f"DCMI cannot be opened: {error}", error.state)
    return _Opened(dcmi, dcmi.chips())


T = TypeVar("T")
S = TypeVar("S", bound=ctypes.Structure)

_PERCENT, _MEGA, _MEBI, _DECI, _CENTI = 0.01, 1e6, 2.0**20, 0.1, 0.01
_AI_CORE, _AI_CPU, _HBM_BANDWIDTH, _VECTOR, _WHOLE = 2, 3, 10, 12, 13
_CLOCK_MEMORY, _CLOCK_CORE, _CLOCK_RATED = 6, 7, 9
_HBM = 2
_IMPORTANT = 2

_FAST = (
    *("npu.utilization", "npu.sm.active", "npu.vector.active", "npu.cpu.utilization", "npu.dram.active"),
    *("npu.memory.usage", "npu.memory.limit", "npu.temperature.memory", "npu.power", "npu.temperature"),
    *("npu.clock.core", "npu.clock.memory", "npu.health", "npu.faults"),
)
_SLOW = (
    *("npu.voltage", "npu.clock.core.limit", "npu.ecc.corrected", "npu.ecc.uncorrected", "npu.pages.isolated"),
    "npu.network.health",
)


def _measure_fast(device: AscendDevice) -> Mapping[str, float]:
    if not device.is_due():
        return {}
    core = _share(device, _AI_CORE)
    whole = _share(device, _WHOLE)
    found = {
        "npu.utilization": core if whole is None else whole,
        "npu.sm.active": core,
        "npu.vector.active": _share(device, _VECTOR),
        "npu.cpu.utilization": _share(device, _AI_CPU),
        "npu.power": _read_scaled(device, _DECI, "power_info"),
        "npu.temperature": _read_scaled(device, 1.0, "temperature"),
        "npu.clock.core": _read_scaled(device, _MEGA, "frequency", _CLOCK_CORE),
        "npu.clock.memory": _read_scaled(device, _MEGA, "frequency", _CLOCK_MEMORY),
        "npu.health": _read_scaled(device, 1.0, "health"),
        "npu.faults": _read_or_none(device, lambda: float(device.faults())),
        **_memory(device),
    }
    return _drop_absent(device, found)


def _measure_slow(device: AscendDevice) -> Mapping[str, float]:
    ecc = _read_or_none(device, lambda: _fill_structure(device, "ecc_info", EccInfo(), _HBM))
    counted = ecc is not None and ecc.enabled == 1
    found = {
        "npu.voltage": _read_scaled(device, _CENTI, "voltage"),
        "npu.clock.core.limit": _read_scaled(device, _MEGA, "frequency", _CLOCK_RATED),
        "npu.ecc.corrected": float(ecc.total[0]) if ecc and counted else None,
        "npu.ecc.uncorrected": float(ecc.total[1]) if ecc and counted else None,
        "npu.pages.isolated": float(sum(ecc.isolated)) if ecc and counted else None,
        "npu.network.health": _read_scaled(device, 1.0, "network_health"),
    }
    return _drop_absent(device, found)


def _network(device: AscendDevice) -> Mapping[str, float]:
    return device.network()


def health_of(device: AscendDevice) -> DeviceHealth:
    """Read the health, the faults and the memory errors of a device for a check on request."""
    values = {**_measure_slow(device)}
    alarm, faults = _read_scaled(device, 1.0, "health"), _read_or_none(device, device.faults)
    values |= {"health": alarm} if alarm is not None else {}
    values |= {"faults": float(faults)} if faults is not None else {}
    lost = int(values.get("npu.ecc.uncorrected", 0))
    errors = [f"{lost} memory errors were not corrected"] if lost else []
    errors += ["it has an important or urgent alarm"] if alarm and alarm >= _IMPORTANT else []
    warnings = [f"it reports {faults} faults"] if faults else []
    return DeviceHealth({name.removeprefix("npu."): value for name, value in values.items()}, errors, warnings)


def _memory(device: AscendDevice) -> dict[str, float | None]:
    """Return the values of HBM; for chips without HBM the values of their other memory."""
    hbm = _read_or_none(device, lambda: _fill_structure(device, "hbm_info", HbmInfo()))
    if hbm is not None and hbm.size:
        busy = _share(device, _HBM_BANDWIDTH)
        return {
            "npu.memory.usage": hbm.used * _MEBI,
            "npu.memory.limit": hbm.size * _MEBI,
            "npu.temperature.memory": float(hbm.temperature),
            "npu.dram.active": busy if busy is not None else min(hbm.bandwidth * _PERCENT, 1.0),
        }
    other = _read_or_none(device, lambda: _fill_structure(device, "memory_info_v3", MemoryInfo()))
    if other is None or not other.size:
        return {}
    used = max(other.size - other.available, 0)
    return {"npu.memory.usage": used * _MEBI, "npu.memory.limit": other.size * _MEBI}


def _fill_structure(device: AscendDevice, name: str, structure: S, *arguments: int) -> S:
    dcmi, chip = device.library
    return dcmi.filled(chip, name, structure, *arguments)


def _read_scaled(device: AscendDevice, scale: float, name: str, *arguments: int) -> float | None:
    dcmi, chip = device.library
    number = _read_or_none(device, lambda: dcmi.number(chip, name, *arguments))
    return None if number is None or number < 0 else number * scale


def _share(device: AscendDevice, kind: int) -> float | None:
    """Return a utilization; None while the device is profiled: then its number is 239."""
    dcmi, chip = device.library
    percent = _read_or_none(device, lambda: dcmi.number(chip, "utilization_rate", kind))
    return percent * _PERCENT if percent is not None and 0 <= percent <= 100 else None


def _read_or_none(device: AscendDevice, read: Callable[[], T]) -> T | None:
    """Return the answer of a call; None without an answer. A missing device is marked as lost."""
    try:
        return read()
    except DcmiError:
        return None
    except DeviceLostError as error:
        device.lose(error)
        raise


def _drop_absent(device: AscendDevice, found: Mapping[str, float | None]) -> Mapping[str, float]:
    values = {name: value for name, value in found.items() if value is not None}
    if values:
        device.answered()
    return values


MEASURES = (Measure(_FAST, _measure_fast),)
"""Measures read at every collection, and at most once in ten seconds."""
SLOW_MEASURES = (Measure(_SLOW, _measure_slow), Measure(NETWORK, _network))
"""Measures read once a minute."""


_NAME = "Ascend[0-9A-Za-z]*-"
_ID = re.compile(rf"{_NAME}(?P<number>\d{{1,4}})", re.ASCII)


def parse_visible_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices in a value of ASCEND_VISIBLE_DEVICES: ``3``, ``0-3``, or the plug-in's ``Ascend910-3``."""
    return numbers_in(text, (device.index for device in devices), f"(?:{_NAME})?")


def _number_of_id(_resource: str, text: str, _devices: Sequence[Numbered]) -> int | None:
    """Return the physical number in an id of the device plug-in: ``Ascend910-3``."""
    match = _ID.fullmatch(text)
    return int(match["number"]) if match else None


VENDOR = Vendor(
    name="ascend",
    title="Ascend",
    noun="NPU",
    source="DCMI",
    prefix="npu",
    open=AscendDriver,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=health_of,
    device_numbers={},  # the kernel chooses the major number
    device_files="/dev/davinci",
    driver_folder="driver/davinci",
    unit_devices=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    domain="huawei.com",
    resource_kinds=("Ascend.+",),
    number_of_id=_number_of_id,
    variables=(
        VisibleVariable(
            "ASCEND_RT_VISIBLE_DEVICES",
            partial(parse_ordered_devices, uuid_prefix=UUID_PREFIX),
            relative=True,
            within="ASCEND_VISIBLE_DEVICES",
        ),
        VisibleVariable("ASCEND_VISIBLE_DEVICES", parse_visible_devices),
    ),
    uuid_prefix=UUID_PREFIX,
    advice={
        DeviceState.NO_PERMISSION: "run the agent as root, or as a user of the group HwHiAiUser",
        DeviceState.LIBRARY_MISSING: "mount /usr/local/dcmi and /usr/local/Ascend/driver into its container",
    },
    help="see `npu-smi info` and the kernel's log",
    recovery="See `npu-smi info -t health` and the kernel's log, and reset or replace it.",
)
