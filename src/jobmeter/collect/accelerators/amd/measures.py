"""Metrics of a device, in the catalogue's units: from its files, and from the firmware's table for the rest."""

from collections.abc import Mapping, Sequence

from jobmeter.collect.accelerators.amd.device import AmdDevice
from jobmeter.collect.accelerators.amd.tables import Value
from jobmeter.collect.accelerators.vendor import Measure

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
    table = device.read_table()
    edge, junction = device.read_sensor("temperature edge"), device.read_sensor("temperature junction")
    hotspot = _scale(junction, _MILLI, _mean(table, Value.HOTSPOT))
    found = {
        "gpu.utilization": _scale(device.read_number("gpu_busy_percent"), _PERCENT, _mean(table, Value.BUSY, _PERCENT)),
        "gpu.memory.copy.utilization": _scale(
            device.read_number("mem_busy_percent"), _PERCENT, _mean(table, Value.MEMORY_BUSY, _PERCENT)
        ),
        "gpu.memory.usage": device.read_number("mem_info_vram_used"),
        "gpu.memory.limit": device.read_number("mem_info_vram_total"),
        "gpu.power": _scale(device.read_sensor("power"), _MICRO, _mean(table, Value.POWER)),
        "gpu.energy": _mean(table, Value.ENERGY, _JOULES),
        "gpu.temperature": _scale(edge, _MILLI, hotspot),
        "gpu.temperature.hotspot": hotspot,
        "gpu.temperature.memory": _scale(
            device.read_sensor("temperature mem"), _MILLI, _mean(table, Value.MEMORY_TEMPERATURE)
        ),
        "gpu.clock.sm": _scale(device.read_sensor("clock sclk"), 1.0, _mean(table, Value.CLOCK, _MEGA)),
        "gpu.clock.memory": _scale(device.read_sensor("clock mclk"), 1.0, _mean(table, Value.MEMORY_CLOCK, _MEGA)),
        "gpu.xgmi.receive": _sum_bytes(table, Value.XGMI_READ),
        "gpu.xgmi.transmit": _sum_bytes(table, Value.XGMI_WRITE),
        **device.read_limit_seconds(table),
    }
    return device.answer(found)


def _measure_slow(device: AmdDevice) -> Mapping[str, float]:
    errors = device.count_errors()
    fan, fastest = device.read_sensor("fan"), device.read_sensor("fan limit")
    found = {
        "gpu.power.limit": _scale(device.read_sensor("power limit"), _MICRO),
        "gpu.fan": fan / fastest if fan is not None and fastest else None,
        "gpu.ecc.corrected": errors.get("ce"),
        "gpu.ecc.uncorrected": errors.get("ue"),
        "gpu.ecc.deferred": errors.get("de"),
        "gpu.pcie.replay": device.read_number("pcie_replay_count"),
        "gpu.pcie.generation": _generation(device.read_text("current_link_speed")),
        "gpu.pcie.generation.limit": _generation(device.read_text("max_link_speed")),
        "gpu.pcie.width": _width(device.read_number("current_link_width")),
        "gpu.pcie.width.limit": _width(device.read_number("max_link_width")),
    }
    return device.answer(found)


def _scale(number: float | None, scale: float, otherwise: float | None = None) -> float | None:
    return otherwise if number is None else number * scale


def _sum_bytes(table: Mapping[Value, Sequence[float]], name: Value) -> float | None:
    numbers = table.get(name)
    return sum(numbers) * _KIBI if numbers else None


def _mean(table: Mapping[Value, Sequence[float]], name: Value, scale: float = 1.0) -> float | None:
    numbers = table.get(name)
    return sum(numbers) / len(numbers) * scale if numbers else None


def _width(lanes: int | None) -> int | None:
    """Return the lanes of a link; None for 0 and for numbers above 32, by which the kernel says that it knows none."""
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None


def _generation(text: str) -> int | None:
    """Return the generation of a speed such as ``16.0 GT/s PCIe``; None for an unknown one."""
    try:
        return _GENERATIONS.get(float(text.split(" ", 1)[0]))
    except ValueError:
        return None


MEASURES = (Measure(_FAST, _measure_fast),)
"""Measures read at every collection."""
SLOW_MEASURES = (Measure(_SLOW, _measure_slow),)
"""Measures read once a minute: limits, counters of errors, and the PCIe link."""
