"""Part of NVML that is used, in NVML's own units."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from jobmeter.collect.accelerators.nvidia import codes
from jobmeter.collect.accelerators.vendor import Accelerator, NotSupportedError

ALL_LINKS = 0xFFFFFFFF
"""Scope of a field that adds up a device's NVLinks."""

Field = tuple[int, int]
"""Field: its number (``NVML_FI_*``) and its scope, 0 without one."""


class NvmlError(NotSupportedError):
    """Value that a call of NVML did not give; ``code`` is NVML's."""

    def __init__(self, text: str, code: int = codes.NOT_SUPPORTED) -> None:
        super().__init__(text, lasting=code in codes.UNSUPPORTED, state=codes.state_of(code))
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


class NvmlDevice(Accelerator, Protocol):
    """GPU. Any call may raise NotSupportedError or DeviceLostError. ``index`` is NVML's own, by PCI address."""

    def read(self, reading: Reading) -> Sequence[float]:
        """Return the numbers of a reading, in its order."""
        ...

    def fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        """Return the values of the fields that the device has."""
        ...

    def links(self) -> Sequence[int]:
        """Return the numbers of the device's NVLinks; empty without any."""
        ...

    def link_states(self) -> Sequence[bool]:
        """Return the state of each NVLink: True if the link is up."""
        ...

    def structure(self, kind: str, function: str) -> Any:  # noqa: ANN401 - of a module without types
        """Return a structure of NVML that a function of it fills."""
        ...

    def profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        """Return available GPM metrics (``NVML_GPM_METRIC_*``) over the time since the last call.

        Empty at the first call: a value needs two readings.
        """
        ...
