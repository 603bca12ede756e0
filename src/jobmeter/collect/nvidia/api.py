"""Part of NVML that is used, in NVML's own units."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from jobmeter.collect.discover.devices import Device
from jobmeter.collect.nvidia import codes

ALL_LINKS = 0xFFFFFFFF
"""Scope of a field that adds up a device's NVLinks."""

Field = tuple[int, int]
"""Field: its number (``NVML_FI_*``) and its scope, 0 without one."""


class NotSupportedError(Exception):
    """Value that the device, its driver or our rights do not provide now. It is absent, never 0.

    ``code`` is NVML's.
    """

    def __init__(self, text: str, code: int = codes.NOT_SUPPORTED) -> None:
        super().__init__(text)
        self.code = code

    @property
    def lasting(self) -> bool:
        """True when the device never gives this value; False where the next call may."""
        return self.code in codes.UNSUPPORTED


class DeviceLostError(Exception):
    """Lost device: no call succeeds before it is opened again, because it fell off the bus or the library ended."""


class DeviceProcess(NamedTuple):
    """Process with a context on a device; ``memory`` in bytes, absent if the driver does not give it.

    ``shared``: it computes through the MPS server, under whose number its work may be counted.
    """

    pid: int
    memory: int | None
    shared: bool = False


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
    # Generation and lanes of the PCIe link now, then the highest that device and slot allow.
    PCIE_LINK = "pcie_link"


class NvmlDevice(Device, Protocol):
    """GPU. Any call may raise NotSupportedError or DeviceLostError. ``index`` is NVML's own, by PCI address.

    Calls may block for ever: ``begin`` runs them in the device's own thread.
    """

    @property
    def reason(self) -> str:
        """Reason why it is not measured, in the words of the library; empty if it is."""
        ...

    @property
    def attached(self) -> bool:
        """True while there is a handle to call it with."""
        ...

    @property
    def busy(self) -> bool:
        """True while work in its thread has not returned."""
        ...

    def begin(self, work: Callable[[], object]) -> bool:
        """Start work in the device's thread. False while earlier work has not returned."""
        ...

    def finish(self, seconds: float) -> Any:  # noqa: ANN401 - of whatever the work was
        """Return the result of the work. Raises TimeoutError after ``seconds``, else the error of the work."""
        ...

    def give_up(self, error: NotSupportedError) -> None:
        """Note that every call of a look failed, the last one so: it is opened again after a while."""
        ...

    def read(self, reading: Reading) -> Sequence[int]:
        """Return the numbers of a reading, in its order."""
        ...

    def fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        """Return the values of the fields that the device has."""
        ...

    def profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        """Return available GPM metrics (``NVML_GPM_METRIC_*``) over the time since the last call.

        Empty at the first call: a value needs two readings.
        """
        ...

    def processes(self) -> Sequence[DeviceProcess]:
        """Return the processes that compute on it."""
        ...

    def process_utilization(self) -> Mapping[int, float] | None:
        """Percent of time, by process number, in which its kernels ran since the last call; idle processes are absent.

        The first call returns no data, because it has no start time.
        """
        ...


class Nvml(Protocol):
    """The library."""

    @property
    def problem(self) -> codes.Failure | None:
        """Reason why the library cannot be used; None while it can."""
        ...

    def devices(self, now_ms: int | None = None) -> Sequence[NvmlDevice]:
        """Return the GPUs, including those that cannot be opened; empty without a driver.

        Opens at the first call. A failed opening is retried after growing pauses up to a minute; without ``now_ms`` at
        every call.
        """
        ...

    def close(self) -> None:
        """Close the library. Nothing can be read afterwards."""
        ...
