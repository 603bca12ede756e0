"""Metrics of a device: for each call of NVML the metrics that it gives, in the catalogue's units."""

from collections.abc import Callable, Mapping

from jobmeter.collect.nvidia.api import ALL_LINKS, Field, NvmlDevice

_PERCENT = 0.01
_MILLI = 1e-3
_MEGA = 1e6
_NANO = 1e-9
_KIBI = 1024.0

Values = Mapping[str, float]
Measure = Callable[[NvmlDevice], Values]

_FIELDS: Mapping[Field, tuple[str, float]] = {
    (74, 0): ("gpu.throttle.power", _NANO),
    (76, 0): ("gpu.throttle.sync", _NANO),
    (269, 0): ("gpu.throttle.thermal.software", _NANO),
    (270, 0): ("gpu.throttle.thermal.hardware", _NANO),
    (271, 0): ("gpu.throttle.power.brake", _NANO),
    (82, 0): ("gpu.temperature.memory", 1.0),
    (138, ALL_LINKS): ("gpu.nvlink.transmit", _KIBI),
    (139, ALL_LINKS): ("gpu.nvlink.receive", _KIBI),
    (197, 0): ("gpu.pcie.transmit", 1.0),
    (198, 0): ("gpu.pcie.receive", 1.0),
}
"""Numbers as in nvml.h (NVML_FI_DEV_*): clock event reasons in nanoseconds, NVLink data in KiB."""

_PROFILE: Mapping[int, str] = {
    1: "gpu.graphics.active",
    2: "gpu.sm.active",
    3: "gpu.sm.occupancy",
    5: "gpu.tensor.active",
    10: "gpu.dram.active",
    11: "gpu.fp64.active",
    12: "gpu.fp32.active",
    13: "gpu.fp16.active",
}
"""Numbers as in nvml.h (NVML_GPM_METRIC_*), all in percent."""


def _one(metric: str, read: Callable[[NvmlDevice], float], scale: float = 1.0) -> Measure:
    return lambda device: {metric: read(device) * scale}


def _utilization(device: NvmlDevice) -> Values:
    kernels, copies = device.utilization()
    return {"gpu.utilization": kernels * _PERCENT, "gpu.memory.copy.utilization": copies * _PERCENT}


def _memory(device: NvmlDevice) -> Values:
    used, total = device.memory()
    return {"gpu.memory.usage": float(used), "gpu.memory.limit": float(total)}


def _clocks(device: NvmlDevice) -> Values:
    multiprocessors, memory = device.clocks()
    return {"gpu.clock.sm": multiprocessors * _MEGA, "gpu.clock.memory": memory * _MEGA}


def _ecc(device: NvmlDevice) -> Values:
    corrected, uncorrected = device.ecc_errors()
    return {"gpu.ecc.corrected": float(corrected), "gpu.ecc.uncorrected": float(uncorrected)}


def _remapped(device: NvmlDevice) -> Values:
    names = ("correctable", "uncorrectable", "pending", "failed")
    return {
        f"gpu.remapped.rows.{name}": float(value) for name, value in zip(names, device.remapped_rows(), strict=True)
    }


def _fields(device: NvmlDevice) -> Values:
    found = device.fields(tuple(_FIELDS))
    return {_FIELDS[field][0]: value * _FIELDS[field][1] for field, value in found.items()}


def _profile(device: NvmlDevice) -> Values:
    return {_PROFILE[metric]: value * _PERCENT for metric, value in device.profile(tuple(_PROFILE)).items()}


MEASURES: tuple[Measure, ...] = (
    _utilization,
    _memory,
    _one("gpu.power", lambda device: device.power(), _MILLI),
    _one("gpu.energy", lambda device: device.energy(), _MILLI),
    _one("gpu.temperature", lambda device: device.temperature()),
    _clocks,
    _one("gpu.performance.state", lambda device: device.performance_state()),
    _one("gpu.encoder.utilization", lambda device: device.encoder(), _PERCENT),
    _one("gpu.decoder.utilization", lambda device: device.decoder(), _PERCENT),
    _fields,
    _profile,
)
"""Read at every turn."""

SLOW_MEASURES: tuple[Measure, ...] = (
    _one("gpu.power.limit", lambda device: device.power_limit(), _MILLI),
    _one("gpu.clock.sm.limit", lambda device: device.highest_clock(), _MEGA),
    _one("gpu.fan", lambda device: device.fan(), _PERCENT),
    _ecc,
    _remapped,
    _one("gpu.pcie.replay", lambda device: device.pcie_replays()),
)
"""Read once a minute: limits, and counters of errors."""

METRICS: tuple[str, ...] = (
    "gpu.utilization",
    "gpu.memory.copy.utilization",
    "gpu.memory.usage",
    "gpu.memory.limit",
    "gpu.power",
    "gpu.power.limit",
    "gpu.energy",
    "gpu.temperature",
    "gpu.fan",
    "gpu.clock.sm",
    "gpu.clock.memory",
    "gpu.clock.sm.limit",
    "gpu.performance.state",
    "gpu.encoder.utilization",
    "gpu.decoder.utilization",
    "gpu.ecc.corrected",
    "gpu.ecc.uncorrected",
    "gpu.remapped.rows.correctable",
    "gpu.remapped.rows.uncorrectable",
    "gpu.remapped.rows.pending",
    "gpu.remapped.rows.failed",
    "gpu.pcie.replay",
    *(metric for metric, _ in _FIELDS.values()),
    *_PROFILE.values(),
)
"""Everything that the measures give."""
