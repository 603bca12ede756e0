"""Metrics of an NPU: the values of each DCMI call, in the catalogue's units."""

import ctypes
from collections.abc import Callable, Mapping
from typing import TypeVar

from jobmeter.collect.accelerators.ascend.device import AscendDevice
from jobmeter.collect.accelerators.ascend.library import DcmiError, EccInfo, HbmInfo, MemoryInfo
from jobmeter.collect.accelerators.ascend.network import METRICS as NETWORK
from jobmeter.collect.accelerators.device import DeviceLostError
from jobmeter.collect.accelerators.vendor import DeviceHealth, Measure

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
        "npu.faults": _read_or_none(device, device.count_faults),
        **_memory(device),
    }
    return device.answer(found)


def _measure_slow(device: AscendDevice) -> Mapping[str, float]:
    ecc = _read_or_none(device, lambda: _fill_structure(device, "ecc_info", EccInfo(), _HBM))
    found: dict[str, float | None] = {
        "npu.voltage": _read_scaled(device, _CENTI, "voltage"),
        "npu.clock.core.limit": _read_scaled(device, _MEGA, "frequency", _CLOCK_RATED),
        "npu.network.health": _read_scaled(device, 1.0, "network_health"),
    }
    if ecc is not None and ecc.enabled == 1:
        found |= {"npu.ecc.corrected": ecc.total[0], "npu.ecc.uncorrected": ecc.total[1]}
        found["npu.pages.isolated"] = sum(ecc.isolated)
    return device.answer(found)


def read_health(device: AscendDevice) -> DeviceHealth:
    """Read the health, the faults and the memory errors of a device for a check on request."""
    values = {**_measure_slow(device)}
    alarm, faults = _read_scaled(device, 1.0, "health"), _read_or_none(device, device.count_faults)
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
    return dcmi.fill(chip, name, structure, *arguments)


def _read_scaled(device: AscendDevice, scale: float, name: str, *arguments: int) -> float | None:
    dcmi, chip = device.library
    number = _read_or_none(device, lambda: dcmi.read_number(chip, name, *arguments))
    return None if number is None or number < 0 else number * scale


def _share(device: AscendDevice, kind: int) -> float | None:
    """Return a utilization; None while the device is profiled: then its number is 239."""
    dcmi, chip = device.library
    percent = _read_or_none(device, lambda: dcmi.read_number(chip, "utilization_rate", kind))
    return percent * _PERCENT if percent is not None and 0 <= percent <= 100 else None


def _read_or_none(device: AscendDevice, read: Callable[[], T]) -> T | None:
    """Return the answer of a call, or None. A missing device is marked as lost."""
    try:
        return read()
    except DcmiError:
        return None
    except DeviceLostError as error:
        device.lose(str(error))
        raise


MEASURES = (Measure(_FAST, _measure_fast),)
"""Measures read at every collection, and at most once in ten seconds."""
SLOW_MEASURES: tuple[Measure[AscendDevice], ...] = (
    Measure(_SLOW, _measure_slow),
    Measure(NETWORK, lambda device: device.network()),
)
"""Measures read once a minute."""
