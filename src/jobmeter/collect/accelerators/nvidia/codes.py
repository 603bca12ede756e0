"""Return codes of NVML, and their meaning for a device or the library. Numbers as in nvml.h (nvmlReturn_t)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobmeter.collect.accelerators.vendor import DriverProblem
from jobmeter.model.device import DeviceState

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28
UNKNOWN = 999

UNSUPPORTED = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED})
"""Codes of values that the device or its driver never gives; other codes may vanish at the next call."""
GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
"""Codes of a lost device: its handle is useless."""
LIBRARY_ENDED = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
"""Codes after which the library has to be opened again: every handle is dead."""
_STATES: Mapping[int, DeviceState] = {
    NO_PERMISSION: DeviceState.NO_PERMISSION,
    OPERATING_SYSTEM: DeviceState.NO_PERMISSION,  # "blocked by the operating system/cgroups"
    DRIVER_NOT_LOADED: DeviceState.DRIVER_NOT_LOADED,
    TIMEOUT: DeviceState.HANGS,
    LIBRARY_NOT_FOUND: DeviceState.LIBRARY_MISSING,
    RESET_REQUIRED: DeviceState.RESET_REQUIRED,
    LIB_RM_VERSION_MISMATCH: DeviceState.LIBRARY_MISMATCH,
}


@dataclass(frozen=True)
class Failure(DriverProblem):
    """Failed call: the library's text for it, the state of the device, and the code."""

    code: int


def find_state(code: int) -> DeviceState:
    """Return the state of a device whose calls all fail with this code."""
    return _STATES.get(code, DeviceState.LOST)


def make_failure(code: int, text: str) -> Failure:
    """Make a failure of a code."""
    return Failure(text, find_state(code), code)


def convert_failure(error: Any) -> Failure:  # noqa: ANN401 - an NVMLError of a module without types
    """Convert an NVMLError to a failure."""
    return make_failure(getattr(error, "value", UNKNOWN), str(error))
