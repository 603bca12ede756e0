"""Metrics of a Neuron device, in the catalogue's units."""

from collections.abc import Mapping

from jobmeter.collect.accelerators.neuron.device import NeuronDevice
from jobmeter.collect.accelerators.vendor import DeviceHealth, Measure

_PERCENT = 0.01
_FAST = ("npu.utilization", "npu.memory.usage", "npu.memory.limit", "npu.executions.failed")
_SLOW = ("npu.power.utilization", "npu.ecc.corrected", "npu.ecc.uncorrected")


def _measure_fast(device: NeuronDevice) -> Mapping[str, float]:
    return device.answer(
        {
            "npu.utilization": _scale(device.read_utilization(), _PERCENT),
            "npu.memory.usage": _scale(device.read_memory_usage()),
            "npu.memory.limit": _scale(device.memory_limit),
            "npu.executions.failed": _scale(device.sum_faults()),
        }
    )


def _measure_slow(device: NeuronDevice) -> Mapping[str, float]:
    return device.answer(
        {
            "npu.power.utilization": _scale(device.measure_power_share(), _PERCENT),
            "npu.ecc.corrected": _scale(device.count_corrected_errors()),
            "npu.ecc.uncorrected": _scale(device.count_uncorrected_errors()),
        }
    )


def read_health(device: NeuronDevice) -> DeviceHealth:
    """Read the errors of a device for a check on request."""
    counts = {"ecc_uncorrected": device.count_uncorrected_errors(), "executions_failed": device.sum_faults()}
    values = {name: float(count) for name, count in counts.items() if count is not None}
    device.answer(values)
    errors = [f"{lost} memory errors were not corrected"] if (lost := counts["ecc_uncorrected"]) else []
    failed = counts["executions_failed"]
    warnings = [f"{failed} executions ended with an error of the hardware"] if failed else []
    return DeviceHealth(values or {"answers": 1.0}, errors, warnings)


def _scale(number: float | None, scale: float = 1.0) -> float | None:
    return None if number is None else number * scale


MEASURES = (Measure(_FAST, _measure_fast),)
"""Measures read at every collection."""
SLOW_MEASURES = (Measure(_SLOW, _measure_slow),)
"""Measures read once a minute: power, which the driver updates once a minute, and error counters."""
