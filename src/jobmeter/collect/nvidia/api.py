"""The part of NVML that is used, in NVML's own units: the interface of the library and of the tests' fake."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from jobmeter.collect.discover.devices import Device

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that adds up a device's NVLinks."""

Field = tuple[int, int]
"""A field's number (``NVML_FI_*``) and its scope, 0 where it has none."""


class NotSupportedError(Exception):
    """The device, its driver or our rights do not give this value. It is absent, never 0."""


class DeviceLostError(Exception):
    """The device has fallen off the bus, or waits for a reset."""


class DeviceProcess(NamedTuple):
    """A process with a context on a device; ``memory`` in bytes, None where the driver does not give it."""

    pid: int
    memory: int | None


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
    PCIE_REPLAYS = "pcie_replays"  # PCIe replays so far


class NvmlDevice(Device, Protocol):
    """One GPU. Any call may raise NotSupportedError or DeviceLostError. ``index`` is NVML's own, by PCI address."""

    def read(self, reading: Reading) -> Sequence[int]:
        """The numbers of a reading, in its order."""
        ...

    def fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        """Values of those fields that the device has."""
        ...

    def profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        """GPM metrics (``NVML_GPM_METRIC_*``) over the time since the last call, those that the device has.

        Empty at the first call: a value needs two looks.
        """
        ...

    def processes(self) -> Sequence[DeviceProcess]:
        """The processes that compute on it."""
        ...

    def process_utilization(self) -> Mapping[int, float]:
        """Percent of time, by process number, in which its kernels ran since the last call."""
        ...


class Nvml(Protocol):
    """The library."""

    def devices(self) -> Sequence[NvmlDevice]:
        """The GPUs there are; empty where there is no driver. Opened at the first call, looked for again when lost."""
        ...
