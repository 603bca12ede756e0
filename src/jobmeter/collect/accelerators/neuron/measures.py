"""Metrics of a Neuron device, in the catalogue's units."""

from collections.abc import Callable, Mapping

from jobmeter.collect.accelerators.neuron.device import NeuronDevice
from jobmeter.collect.accelerators.vendor import DeviceHealth, Measure

_PERCENT = 0.01


def _make_measure(readings: Mapping[str, Callable[[NeuronDevice], float | None]]) -> Measure[NeuronDevice]:
    return Measure(
        tuple(readings), lambda device: device.answer({name: read(device) for name, read in readings.items()})
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


def _scale_percent(percent: float | None) -> float | None:
    return None if percent is None else percent * _PERCENT


MEASURES = (
    _make_measure(
        {
            "npu.utilization": lambda device: _scale_percent(device.read_utilization()),
            "npu.memory.usage": NeuronDevice.read_memory_usage,
            "npu.memory.limit": lambda device: device.memory_limit,
            "npu.executions.failed": NeuronDevice.sum_faults,
        }
    ),
)
"""Measures read at every collection."""
SLOW_MEASURES = (
    _make_measure(
        {
            "npu.power.utilization": lambda device: _scale_percent(device.measure_power_share()),
            "npu.ecc.corrected": NeuronDevice.count_corrected_errors,
            "npu.ecc.uncorrected": NeuronDevice.count_uncorrected_errors,
        }
    ),
)
"""Measures read once a minute: power, which the driver updates once a minute, and error counters."""
