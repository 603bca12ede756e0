"""State of a device: measured, or the reason why not."""

from enum import StrEnum


class DeviceState(StrEnum):
    """State of a device: measured, or the reason why not.

    Its ``code`` is the value of the metric ``gpu.state``. Codes are public and follow the order here: append new states
    at the end.
    """

    MEASURED = "measured"
    NO_PERMISSION = "no permission"
    """The agent may not open it: a control group, a container with some of the devices, or the rights of its file."""
    LIBRARY_MISSING = "library missing"
    """The kernel has the driver, but its library is missing."""
    LIBRARY_MISMATCH = "library mismatch"
    """The version of the library differs from the kernel's driver: one of them was replaced."""
    DRIVER_NOT_LOADED = "driver not loaded"
    HANGS = "hangs"
    """A call to it does not return."""
    RESET_REQUIRED = "reset required"
    LOST = "lost"
    """It fell off the bus, or the driver cannot reach it."""

    @property
    def code(self) -> int:
        """Number of the state: 0 measured, 7 lost."""
        return _CODES[self]

    @property
    def usable(self) -> bool:
        """False if no job can compute on the device. True if only the agent cannot reach it."""
        return self not in {self.DRIVER_NOT_LOADED, self.HANGS, self.RESET_REQUIRED, self.LOST}


STATES = tuple(DeviceState)
"""States in the order of their codes."""
_CODES = {state: code for code, state in enumerate(STATES)}
