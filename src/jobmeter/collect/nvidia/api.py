"""The part of NVML that is used, in NVML's own units: the interface of the library and of the tests' fake."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

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


class NvmlDevice(Protocol):
    """One GPU. Any call may raise NotSupportedError or DeviceLostError."""

    @property
    def index(self) -> int:
        """NVML's own number, by PCI address."""
        ...

    @property
    def uuid(self) -> str:
        """``GPU-...``: the same whatever the order."""
        ...

    @property
    def minor(self) -> int | None:
        """The number of its file: ``/dev/nvidia2`` is 2. None where the driver does not tell."""
        ...

    @property
    def name(self) -> str:
        """The product."""
        ...

    def utilization(self) -> tuple[int, int]:
        """Percent of time in which a kernel ran, and in which the memory controller was busy."""
        ...

    def memory(self) -> tuple[int, int]:
        """Bytes in use and bytes there are."""
        ...

    def power(self) -> int:
        """Milliwatts drawn."""
        ...

    def power_limit(self) -> int:
        """Milliwatts allowed."""
        ...

    def energy(self) -> int:
        """Millijoules since the driver was loaded."""
        ...

    def temperature(self) -> int:
        """Degrees Celsius of the core."""
        ...

    def fan(self) -> int:
        """Percent of the highest speed."""
        ...

    def clocks(self) -> tuple[int, int]:
        """MHz of the multiprocessors and of the memory."""
        ...

    def highest_clock(self) -> int:
        """Most MHz of the multiprocessors."""
        ...

    def performance_state(self) -> int:
        """P-state, 0 the fastest."""
        ...

    def encoder(self) -> int:
        """Percent of time in which the video encoder worked."""
        ...

    def decoder(self) -> int:
        """Percent of time in which the video decoder worked."""
        ...

    def ecc_errors(self) -> tuple[int, int]:
        """Corrected and uncorrected memory errors since the driver was loaded."""
        ...

    def remapped_rows(self) -> tuple[int, int, int, int]:
        """Rows remapped for correctable and for uncorrectable errors, whether one is pending, whether one failed."""
        ...

    def pcie_replays(self) -> int:
        """PCIe replays so far."""
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
