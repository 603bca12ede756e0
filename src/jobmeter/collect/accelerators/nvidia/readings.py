"""Numbers that a GPU of NVIDIA gives together, each by its calls of NVML."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from jobmeter.collect.accelerators.device import NotSupportedError
from jobmeter.collect.accelerators.nvidia import codes

ALL_LINKS = 0xFFFFFFFF
"""Scope of a field that adds up a device's NVLinks."""

Field = tuple[int, int]
"""Field: its number (``NVML_FI_*``) and its scope, 0 without one."""


class NvmlError(NotSupportedError):
    """Value that a call of NVML did not give; ``code`` is NVML's."""

    def __init__(self, text: str, code: int = codes.NOT_SUPPORTED) -> None:
        super().__init__(text, lasting=code in codes.UNSUPPORTED, state=codes.find_state(code))
        self.code = code


class Reading(StrEnum):
    """Numbers that a device gives together."""

    UTILIZATION = "utilization"  # percent of time in which a kernel ran, and in which the memory controller was busy
    MEMORY = "memory"  # bytes in use and bytes there are
    POWER = "power"  # milliwatts drawn
    POWER_LIMIT = "power_limit"  # milliwatts allowed
    ENERGY = "energy"  # millijoules since the driver was loaded
    TEMPERATURE = "temperature"  # degrees Celsius of the core
    FAN = "fan"  # percent of the highest speed
    CLOCKS = "clocks"  # MHz of the multiprocessors and of the memory
    HIGHEST_CLOCK = "highest_clock"  # most MHz of the multiprocessors
    PERFORMANCE_STATE = "performance_state"  # P-state, 0 the fastest
    ENCODER = "encoder"  # percent of time in which the video encoder worked
    DECODER = "decoder"  # percent of time in which the video decoder worked
    ECC_ERRORS = "ecc_errors"  # corrected and uncorrected memory errors since the driver was loaded
    # Rows remapped for correctable and for uncorrectable errors, whether one is pending, whether one failed.
    REMAPPED_ROWS = "remapped_rows"
    SPARE_ROWS = "spare_rows"  # memory banks with all, most, part, few and none of their spare rows
    MARGIN = "margin"  # degrees Celsius until the device slows down
    PCIE_REPLAYS = "pcie_replays"  # PCIe replays so far
    # Generation and lanes of the PCIe link now, then the highest that device and slot allow.
    PCIE_LINK = "pcie_link"


Call = Callable[..., Any]
"""Function that calls the module for the device."""


def _memory(nvml: Any, call: Call) -> Sequence[int]:  # noqa: ANN401 - the module has no types
    try:
        found = call(nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlMemory_v2)
    except NvmlError as error:
        if not error.lasting:  # memory reserved by the driver would count as used for one reading
            raise
        # Before driver 510, memory reserved by the driver counts as used.
        found = call(nvml.nvmlDeviceGetMemoryInfo)
    return found.used, found.total


def _performance_state(nvml: Any, call: Call) -> Sequence[int]:  # noqa: ANN401
    state = int(call(nvml.nvmlDeviceGetPerformanceState))
    if not 0 <= state <= 15:
        raise NvmlError("the P-state is unknown")
    return [state]


def _ecc_errors(nvml: Any, call: Call) -> Sequence[int]:  # noqa: ANN401
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return [call(nvml.nvmlDeviceGetTotalEccErrors, kind, nvml.NVML_VOLATILE_ECC) for kind in kinds]


def _spare_rows(nvml: Any, call: Call) -> Sequence[int]:  # noqa: ANN401
    found = call(nvml.nvmlDeviceGetRowRemapperHistogram)
    return found.max, found.high, found.partial, found.low, found.none


READINGS: Mapping[Reading, Callable[[Any, Call], Sequence[int]]] = {
    Reading.MEMORY: _memory,
    Reading.POWER: lambda nvml, call: [call(nvml.nvmlDeviceGetPowerUsage)],
    Reading.POWER_LIMIT: lambda nvml, call: [call(nvml.nvmlDeviceGetEnforcedPowerLimit)],
    Reading.ENERGY: lambda nvml, call: [call(nvml.nvmlDeviceGetTotalEnergyConsumption)],
    Reading.TEMPERATURE: lambda nvml, call: [call(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)],
    Reading.FAN: lambda nvml, call: [call(nvml.nvmlDeviceGetFanSpeed)],
    Reading.CLOCKS: lambda nvml, call: [
        call(nvml.nvmlDeviceGetClockInfo, clock) for clock in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
    ],
    Reading.HIGHEST_CLOCK: lambda nvml, call: [call(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)],
    Reading.PERFORMANCE_STATE: _performance_state,
    Reading.ENCODER: lambda nvml, call: call(nvml.nvmlDeviceGetEncoderUtilization)[:1],
    Reading.DECODER: lambda nvml, call: call(nvml.nvmlDeviceGetDecoderUtilization)[:1],
    Reading.ECC_ERRORS: _ecc_errors,
    Reading.REMAPPED_ROWS: lambda nvml, call: call(nvml.nvmlDeviceGetRemappedRows),
    Reading.SPARE_ROWS: _spare_rows,
    Reading.MARGIN: lambda nvml, call: [call(nvml.nvmlDeviceGetMarginTemperature)],
    Reading.PCIE_REPLAYS: lambda nvml, call: [call(nvml.nvmlDeviceGetPcieReplayCounter)],
    Reading.PCIE_LINK: lambda nvml, call: [
        call(function)
        for function in (
            nvml.nvmlDeviceGetCurrPcieLinkGeneration,
            nvml.nvmlDeviceGetCurrPcieLinkWidth,
            nvml.nvmlDeviceGetMaxPcieLinkGeneration,
            nvml.nvmlDeviceGetMaxPcieLinkWidth,
        )
    ],
}
"""Functions that read the numbers of each reading."""

OF_HARDWARE = frozenset({Reading.SPARE_ROWS})
"""Readings that no setting changes: a device that lacks one is not asked again in a session."""
