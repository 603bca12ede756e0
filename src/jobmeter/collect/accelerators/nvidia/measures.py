"""Metrics of a device: the metrics of each NVML call, in the catalogue's units."""

from collections.abc import Mapping

from jobmeter.collect.accelerators.nvidia.api import ALL_LINKS, Field, NvmlDevice, Reading
from jobmeter.collect.accelerators.vendor import Measure

_PERCENT = 0.01
_MILLI = 1e-3
_MEGA = 1e6
_NANO = 1e-9
_KIBI = 1024.0

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


def _of(reading: Reading, scale: float, *metrics: str) -> Measure[NvmlDevice]:
    def read(device: NvmlDevice) -> Mapping[str, float]:
        # An instance that shares its memory has no total.
        return {metric: value * scale for metric, value in zip(metrics, device.read(reading), strict=False)}

    return Measure(metrics, read)


def _fields(device: NvmlDevice) -> Mapping[str, float]:
    found = device.fields(tuple(_FIELDS))
    return {_FIELDS[field][0]: value * _FIELDS[field][1] for field, value in found.items()}


def _profile(device: NvmlDevice) -> Mapping[str, float]:
    return {_PROFILE[metric]: value * _PERCENT for metric, value in device.profile(tuple(_PROFILE)).items()}


_LINK = tuple(f"gpu.pcie.{name}" for name in ("generation", "width", "generation.limit", "width.limit"))
_REMAPPED = tuple(f"gpu.remapped.rows.{name}" for name in ("correctable", "uncorrectable", "pending", "failed"))

MEASURES = (
    _of(Reading.UTILIZATION, _PERCENT, "gpu.utilization", "gpu.memory.copy.utilization"),
    _of(Reading.MEMORY, 1.0, "gpu.memory.usage", "gpu.memory.limit"),
    _of(Reading.POWER, _MILLI, "gpu.power"),
    _of(Reading.ENERGY, _MILLI, "gpu.energy"),
    _of(Reading.TEMPERATURE, 1.0, "gpu.temperature"),
    _of(Reading.CLOCKS, _MEGA, "gpu.clock.sm", "gpu.clock.memory"),
    _of(Reading.PERFORMANCE_STATE, 1.0, "gpu.performance.state"),
    _of(Reading.ENCODER, _PERCENT, "gpu.encoder.utilization"),
    _of(Reading.DECODER, _PERCENT, "gpu.decoder.utilization"),
    Measure(tuple(metric for metric, _ in _FIELDS.values()), _fields),
    Measure(tuple(_PROFILE.values()), _profile),
)
"""Measures read at every collection."""

SLOW_MEASURES = (
    _of(Reading.POWER_LIMIT, _MILLI, "gpu.power.limit"),
    _of(Reading.HIGHEST_CLOCK, _MEGA, "gpu.clock.sm.limit"),
    _of(Reading.FAN, _PERCENT, "gpu.fan"),
    _of(Reading.ECC_ERRORS, 1.0, "gpu.ecc.corrected", "gpu.ecc.uncorrected"),
    _of(Reading.REMAPPED_ROWS, 1.0, *_REMAPPED),
    _of(Reading.PCIE_REPLAYS, 1.0, "gpu.pcie.replay"),
    _of(Reading.PCIE_LINK, 1.0, *_LINK),
)
"""Measures read once a minute: limits, counters of errors, and the PCIe link."""
